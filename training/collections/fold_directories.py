"""Writes each round of a cross-validation as a collection directory, whose files are links to the original's."""

import os
from collections.abc import Sequence
from pathlib import Path

from training.collections.collection import Collection
from training.collections.directory import Directory
from training.collections.folds import rotations
from training.collections.runs import read_run, write_run
from training.collections.types import CollectionError, Run

LINKED = ("corpus.jsonl", "queries.jsonl", "qrels.tsv", "spans.jsonl")


def judged_queries(collection: Collection) -> list[str]:
    """The ids of the queries that have a text and a judgement, sorted: folds are made of these."""
    return sorted(query for query in collection.qrels if query in collection.queries)


def write_folds(collection: Collection, folds: Sequence[Sequence[str]], out: Path) -> list[Path]:
    """Write OUT/NAME-fold-1 ... and, last, OUT/NAME-joined, whose test split holds every query. Returns their paths.

    Raises CollectionError for a query without text or a collection without a first-stage run, FileExistsError for a directory
    that exists.
    """
    if not isinstance(collection.parts, Directory):
        raise CollectionError(f"{collection.path}: is no collection directory; give its description the key 'folds' instead")
    for query in (query for fold in folds for query in fold):
        collection.query(query)
    candidates = first_stage(collection)
    splits = [rotation._asdict() for rotation in rotations(folds)]
    names = [f"{collection.name}-fold-{number}" for number in range(1, len(folds) + 1)] + [f"{collection.name}-joined"]
    everything = {"test": [query for fold in folds for query in fold]}
    for name, parts in zip(names, [*splits, everything], strict=True):
        _write_collection(collection, parts, candidates, out / name)
    return [out / name for name in names]


def first_stage(collection: Collection) -> Run:
    """The candidates of all the collection's BM25 runs together, by query. Raises CollectionError when it has none."""
    paths = sorted(collection.path.glob("run.*.bm25.trec*"))
    if not paths:
        raise CollectionError(f"{collection.path}: has no run.SPLIT.bm25.trec or .gz to take candidates from")
    merged: Run = {}
    for path in paths:
        merged |= read_run(path)
    return merged


def _write_collection(original: Collection, splits: dict[str, list[str]], candidates: Run, out: Path) -> None:
    (out / "splits").mkdir(parents=True)
    for name in (f"{part}{suffix}" for part in LINKED for suffix in (".gz", "")):
        if (original.path / name).exists():
            target = (original.path / name).resolve()
            (out / name).symlink_to(os.path.relpath(target, out.resolve()))
    for split, queries in splits.items():
        (out / "splits" / f"{split}.txt").write_text("\n".join(queries) + "\n", encoding="utf-8")
        run = {query: candidates[query] for query in queries if query in candidates}
        write_run(run, out / f"run.{split}.bm25.trec.gz", "bm25")
