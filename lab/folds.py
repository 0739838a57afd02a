"""Writes each round of a cross-validation as a collection directory, so that every command works on it.

Its files are links to the original's. The runs of the test folds join into one run over all queries. (A collection described in
YAML names its folds there: training.data.descriptions.)
"""

import json
import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from training.data.collection import Collection, DescribedCollection
from training.data.files import numbered_lines, read_run, write_run
from training.data.folds import rotations
from training.data.types import CollectionError, FileError, Run

LINKED = ("corpus.jsonl", "queries.jsonl", "qrels.tsv", "spans.jsonl")


def judged_queries(collection: Collection) -> list[str]:
    """The ids of the queries that have a text and a judgement, sorted: folds are made of these."""
    return sorted(query for query in collection.qrels if query in collection.queries)


def write_folds(collection: Collection, folds: Sequence[Sequence[str]], out: Path) -> list[Path]:
    """Write OUT/NAME-fold-1 ... and, last, OUT/NAME-joined, whose test split holds every query. Returns their paths.

    Raises CollectionError for a query without text or a collection without a first-stage run, FileExistsError for a directory
    that exists.
    """
    if isinstance(collection, DescribedCollection):
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


def read_folds(paths: Sequence[Path]) -> list[list[str]]:
    """Read published folds: a file of query ids for each, or one JSON file with a list of lists of ids.

    Raises FileError when they are not folds: fewer than three, an empty one, or a query in two of them.
    """
    folds = (
        _json_folds(paths[0]) if paths[0].suffix == ".json" else [[line.strip() for _, line in numbered_lines(p)] for p in paths]
    )
    named = ", ".join(map(str, paths))
    if len(folds) < 3 or not all(folds):
        raise FileError(
            f"{named}: {len(folds)} folds of {', '.join(str(len(fold)) for fold in folds)} queries; three or more are needed"
        )
    counts = Counter(query for fold in folds for query in fold)
    if repeated := [query for query, count in counts.items() if count > 1]:
        raise FileError(f"{named}: query {repeated[0]} stands twice; a query belongs to one fold")
    return folds


def _json_folds(path: Path) -> list[list[str]]:
    try:
        folds = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise FileError(f"{path}: is not JSON ({error})") from None
    if not isinstance(folds, list) or not all(isinstance(fold, list) for fold in folds):
        raise FileError(f"{path}: must be a list of folds, each a list of query ids")
    return [list(map(str, fold)) for fold in folds]
