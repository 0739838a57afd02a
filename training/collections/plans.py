"""Plans the reading of a described collection, without downloading anything."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from training.collections import datasets, trec
from training.collections.descriptions import JUDGED, SCORED, Description, Part
from training.collections.folds import Round
from training.collections.types import CollectionError, Plan


def make_plan(description: Description, base: Path, cross_validation: Round, splits: Sequence[str]) -> Plan:
    """See `Parts.plan`.

    Args:
        description: names what is read.
        base: the directory that its paths are relative to.
        cross_validation: the round that the splits belong to.
        splits: the splits that would be read.
    """
    names = list(dict.fromkeys(name for split in splits for name in cross_validation.sources(split)))
    parts = [description.part(name) for name in names]
    reads = [_plan_documents(description)]
    reads += [
        f"split {split}: {cross_validation.in_words(split)}" for split in splits if cross_validation.sources(split) != [split]
    ]
    reads += [f"gold passages: {_plan_passages(name)}" for name in description.passages]
    reads += [f"split {name}: {_plan_part(description, part)}" for name, part in zip(names, parts, strict=True)]
    files = [file for part in parts for file in _files(description, part)]
    if isinstance(description.documents, trec.Files):
        files.append(description.documents.path)
    paths = dict.fromkeys(trec.resolve(base, file) for file in files)
    return Plan(reads, [str(path) for path in paths if not path.exists()])


def _files(description: Description, part: Part) -> list[str]:
    kind = description.candidates_of(part)
    files = [part.queries.path if part.queries else None, part.qrels, None if kind in (SCORED, JUDGED) else kind]
    return [file for file in files if file]


def _plan_documents(description: Description) -> str:
    source = description.documents
    if not isinstance(source, str):
        return f"documents: {source.format} files {source.path}"
    dataset = datasets.load(source)
    fields = ", ".join(dataset.docs_cls()._fields)
    return f"documents: {_count(dataset, 'docs')} of ir_datasets {source} ({fields})"


def _plan_part(description: Description, part: Part) -> str:
    """One line about what a split reads. Raises CollectionError for a data set that lacks a part it should give."""
    if not part.datasets and not (part.queries and part.qrels):
        raise CollectionError(f"{description.name}: a split needs datasets, or files of queries and of qrels")
    reads = [_plan_dataset(name, part, description.field) for name in part.datasets]
    reads += [f"queries {part.queries.path}"] if part.queries else []
    reads += [f"judgements {part.qrels}"] if part.qrels else []
    return "; ".join([*reads, f"candidates: {_plan_candidates(description, part)}"])


def _plan_candidates(description: Description, part: Part) -> str:
    kind = description.candidates_of(part)
    if kind == JUDGED:
        return "every judged document"
    if kind != SCORED:
        return f"the best {description.depth} of {kind}"
    lacking = [name for name in part.datasets if not datasets.load(name).has(SCORED)]
    if lacking or not part.datasets:
        where = f"ir_datasets {lacking[0]} has no scoreddocs" if lacking else "TREC files have no scoreddocs"
        raise CollectionError(f"{description.name}: {where}; name a TREC run in a YAML file as candidates, or say judged")
    counts = ", ".join(_count(datasets.load(name), SCORED) for name in part.datasets)
    return f"the best {description.depth} of its scoreddocs ({counts})"


def _plan_dataset(name: str, part: Part, field: str | None) -> str:
    dataset = datasets.load(name)
    for kind in [k for k, file in (("queries", part.queries), ("qrels", part.qrels)) if not file]:
        if not dataset.has(kind):
            raise CollectionError(f"ir_datasets {name} has no {kind}")
    if field and not part.queries and field not in dataset.queries_cls()._fields:
        known = ", ".join(dataset.queries_cls()._fields)
        raise CollectionError(f"ir_datasets {name}: its queries have no field {field!r}; they have {known}")
    return f"ir_datasets {name}, {_count(dataset, 'queries')} queries, {_count(dataset, 'qrels')} judgements"


def _plan_passages(name: str) -> str:
    dataset = datasets.load(name)
    for kind in ("docs", "qrels"):
        if not dataset.has(kind):
            raise CollectionError(f"ir_datasets {name} has no {kind}: it says no gold passages")
    return f"{_count(dataset, 'qrels')} of ir_datasets {name}"


def _count(dataset: Any, kind: str) -> str:
    number = datasets.count(dataset, kind)
    return "?" if number is None else f"{number:,}"
