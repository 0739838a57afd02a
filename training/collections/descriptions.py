"""Collections of TREC files and of `ir_datasets` names, described in a small YAML file.

::

    name: robust04
    documents: disks45/nocr                   # an ir_datasets name; or files: {path: documents/, format: trec}
    candidates: robust04.bm25.trec.gz         # a TREC run; scoreddocs: the data set's own; judged: the documents judged
    splits:
      train: {queries: {path: topics.txt}, qrels: qrels.train.txt}
      dev: disks45/nocr/trec-robust-2004/fold4
      all: [gov2/trec-tb-2004, gov2/trec-tb-2005]

A split that is not listed is looked up below `documents`: 'train' of msmarco-document is msmarco-document/train. With `folds`,
which are names of splits, or a number that the queries of the split `all` are dealt into, train, dev and test are those of a round
of cross-validation: ``FILE#2`` tests on the second fold, validates on the third and trains on the others; FILE alone is its first
round. Paths are relative to the file.

A query without a relevant document among its judgements belongs to no split: it can be neither trained on nor measured.
"""

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from training.collections import datasets, trec
from training.collections.alignment import AlignedSpans
from training.collections.directory import read_qrels
from training.collections.folds import make_folds, rotations
from training.collections.runs import read_run
from training.collections.types import CollectionError, Grades, Parts, Plan, Run, Span

PACKAGED = Path(__file__).parent / "presets"
DESCRIPTION = "collection.yaml"
SCORED, JUDGED, ALL = "scoreddocs", "judged", "all"


def _several(value: Any) -> Any:
    return (value,) if isinstance(value, str) else value


def _part(value: Any) -> Any:
    return {"datasets": value} if isinstance(value, str | list) else value


Names = Annotated[tuple[str, ...], BeforeValidator(_several)]


class Part(BaseModel):
    """Where the queries and judgements of a split come from; of each split, files go before data sets."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    datasets: Names = Field((), description="ir_datasets names")
    queries: trec.Topics | None = Field(None, description="a file of topics")
    qrels: str | None = Field(None, description="a file of TREC judgements")
    candidates: str | None = Field(None, description="candidates of this split, when they are not the collection's")


class Description(BaseModel):
    """A collection, as its YAML file says it."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str = Field(description="what it is called in recipes and tables", pattern=r"^[\w.-]+$")
    documents: str | trec.Files = Field(description="an ir_datasets name, or files")
    candidates: str = Field(SCORED, description="a TREC run; scoreddocs: the data set's own; judged: the documents judged")
    depth: int = Field(100, ge=1, description="candidates of a query that are kept, the best ones; judged ones are all kept")
    field: str | None = Field(None, description="a topic's field that is asked, such as description; its title when left out")
    splits: dict[str, Annotated[Part, BeforeValidator(_part)]] = Field({}, description="by name")
    folds: int | tuple[str, ...] = Field(0, description="splits that are folds, or into how many the queries of `all` are dealt")
    passages: Names = Field((), description="ir_datasets names of judged passages of the documents: gold spans, for GoldP")


class Judged(NamedTuple):
    """Queries that have a relevant document, and their judgements."""

    queries: dict[str, str]
    qrels: Grades


def find_description(reference: Path) -> tuple[Path, int] | None:
    """The YAML file that a collection's name stands for, and the fold after its '#' (0 for none); none where it is no such name.

    A file that is not there is looked for among those that come along. Raises CollectionError for a fold that is no number.
    """
    name, _, fold = str(reference).partition("#")
    path = Path(name) / DESCRIPTION if (Path(name) / DESCRIPTION).is_file() else Path(name)
    if path.suffix not in (".yaml", ".yml"):
        return None
    if fold and (not fold.isdecimal() or int(fold) < 1):
        raise CollectionError(f"{reference}: behind the # stands the number of a fold, from 1, not {fold!r}")
    return path if path.exists() else PACKAGED / path, int(fold or 0)


def described(path: Path, fold: int) -> "DescribedParts":
    """The parts that a YAML file describes. Raises CollectionError in one line for what it cannot mean."""
    try:
        description = Description.model_validate(yaml.safe_load(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        known = ", ".join(sorted(p.name for p in PACKAGED.glob("*.yaml")))
        raise CollectionError(f"{path.name}: no such file, here or among those that come along ({known})") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise CollectionError(f"{path}: cannot be read as YAML ({' '.join(str(error).split())})") from None
    except ValidationError as error:
        wrong = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']} ({e['input']!r})" for e in error.errors())
        raise CollectionError(f"{path}: {wrong}") from None
    return DescribedParts(description, path.parent, fold)


def named(name: str) -> "DescribedParts":
    """The parts of a data set, by its ir_datasets name. Raises CollectionError when there is none of that name."""
    datasets.load(name)
    return DescribedParts(Description(name=name.replace("/", "-"), documents=name), Path(), 0)


class DescribedParts(Parts):
    """Reads what a description names. Splits are read one by one, so that no other's files are asked for.

    Args:
        description: what to read.
        base: what its paths are relative to.
        fold: the round of cross-validation, from 1; 0 for the first one, unnamed.
    """

    def __init__(self, description: Description, base: Path, fold: int) -> None:
        self.description = description
        self.base = base
        self.fold = fold
        self.corpus = description.documents if isinstance(description.documents, str) else description.documents.path
        self._splits: dict[str, Judged] = {}
        self._together = Judged({}, {})
        self._check_folds()

    def _check_folds(self) -> None:
        told, folds = self.description.name, self.description.folds
        count = folds if isinstance(folds, int) else len(folds)
        if self.fold > count:
            raise CollectionError(f"{told}#{self.fold}: there is no such fold; there are {count}")
        if count in (1, 2):
            raise CollectionError(f"{told}: {count} folds are too few; one tests, one validates, at least one trains")
        needed = folds if not isinstance(folds, int) else (ALL,) if folds else ()
        for name in needed:
            if name not in self.description.splits:
                raise CollectionError(f"{told}: its folds need the split {name!r}, which it does not describe")

    @property
    def name(self) -> str:
        """The description's, with the fold that was asked for."""
        return self.description.name + (f"-fold-{self.fold}" if self.fold else "")

    @cached_property
    def documents(self) -> datasets.StoredDocuments:
        """In the store on disk."""
        return datasets.StoredDocuments(self._handler(), self.corpus)

    def _handler(self) -> Any:
        source = self.description.documents
        return datasets.load(source) if isinstance(source, str) else trec.file_documents(source, self.base)

    @property
    def queries(self) -> dict[str, str]:
        """Of the splits asked for so far."""
        return self._together.queries

    @property
    def qrels(self) -> Grades:
        """Of the splits asked for so far."""
        return self._together.qrels

    @cached_property
    def spans(self) -> Mapping[str, list[Span]]:
        """The judged passages that stand in the relevant documents word for word."""
        judged: Grades = {}
        for name in self.description.passages:
            judged |= datasets.read_grades(datasets.load(name), name)
        if not judged:
            return {}
        first = self.description.passages[0]
        return AlignedSpans(self.qrels, judged, self.documents, datasets.StoredDocuments(datasets.load(first), first))

    @property
    def has_spans(self) -> bool:
        """Whether the description names judged passages."""
        return bool(self.description.passages)

    def present(self, doc_ids: Sequence[str]) -> list[str]:
        """All of them: what the store lacks is said when it is read."""
        return list(doc_ids)

    def split(self, name: str) -> list[str]:
        """In the order of the topics."""
        queries = list(self._judged(name).queries)
        if not queries:
            raise CollectionError(f"{self.name}: no query of split {name} has a text and a relevant document")
        return queries

    def has_run(self, split: str) -> bool:
        """Always: a description names its candidates."""
        return True

    def run(self, split: str) -> Run:
        """The candidates of a split's queries."""
        found: Run = {}
        for name in self._read_from(split):
            found |= self._candidates(name)
        run = {query: found[query] for query in self._judged(split).queries if query in found}
        if not run:
            raise CollectionError(f"{self.name}: split {split} has no candidates")
        return run

    def plan(self, splits: Sequence[str]) -> Plan:
        """See Parts."""
        reads = [f"split {split}: {self._told(split)}" for split in splits if self._read_from(split) != [split]]
        reads += [f"gold passages: {_plan_passages(name)}" for name in self.description.passages]
        names = list(dict.fromkeys(name for split in splits for name in self._read_from(split)))
        parts = [self._part(name) for name in names]
        reads += [f"split {name}: {self._plan_part(part)}" for name, part in zip(names, parts, strict=True)]
        files = [file for part in parts for file in self._files(part)]
        documents = self.description.documents
        if isinstance(documents, trec.Files):
            files.append(documents.path)
        paths = dict.fromkeys(trec.resolve(self.base, file) for file in files)
        return Plan([self._plan_documents(), *reads], [str(path) for path in paths if not path.exists()])

    def _rounds(self, folds: Sequence[Sequence[str]]) -> dict[str, list[str]]:
        return rotations(folds)[max(self.fold, 1) - 1]._asdict()

    def _dealt(self, split: str) -> bool:
        """Whether a split is made of the folds."""
        return bool(self.description.folds) and split in ("train", "dev", "test") and split not in self.description.splits

    def _read_from(self, split: str) -> list[str]:
        """The described splits that a split is made of."""
        if not self._dealt(split):
            return [split]
        folds = self.description.folds
        return [ALL] if isinstance(folds, int) else self._rounds([[name] for name in folds])[split]

    def _judged(self, split: str) -> Judged:
        if split not in self._splits:
            judged = self._splits[split] = self._combine(split) if self._dealt(split) else self._read(self._part(split))
            self._together.queries.update(judged.queries)
            self._together.qrels.update(judged.qrels)
        return self._splits[split]

    def _combine(self, split: str) -> Judged:
        """A split of a round of cross-validation."""
        parts = [self._judged(name) for name in self._read_from(split)]
        queries = {query: text for part in parts for query, text in part.queries.items()}
        qrels = {query: grades for part in parts for query, grades in part.qrels.items()}
        if isinstance(self.description.folds, int):
            dealt = set(self._rounds(make_folds(queries, self.description.folds))[split])
            queries = {query: text for query, text in queries.items() if query in dealt}
        return Judged(queries, {query: qrels[query] for query in queries})

    def _part(self, split: str) -> Part:
        """What describes a split. Raises CollectionError when nothing does."""
        source = self.description.documents
        if split in self.description.splits:
            return self.description.splits[split]
        if isinstance(source, str):
            return Part(datasets=(datasets.find_split(source, split),))
        known = ", ".join(self.description.splits) or "none"
        raise CollectionError(f"{self.name}: has no split {split!r}; it describes {known}")

    def _read(self, part: Part) -> Judged:
        loaded = [(name, datasets.load(name)) for name in part.datasets]
        if part.queries:
            queries = trec.read_topics(part.queries, self.base, self.description.field)
        else:
            queries = {
                q: text for name, of in loaded for q, text in datasets.read_queries(of, name, self.description.field).items()
            }
        if part.qrels:
            qrels = read_qrels(trec.existing(self.base, part.qrels))
        else:
            qrels = {q: grades for name, of in loaded for q, grades in datasets.read_grades(of, name).items()}
        usable = {query: text for query, text in queries.items() if any(grade > 0 for grade in qrels.get(query, {}).values())}
        return Judged(usable, {query: qrels[query] for query in usable})

    def _candidates(self, split: str) -> Run:
        part = self._part(split)
        kind, depth = part.candidates or self.description.candidates, self.description.depth
        if kind == JUDGED:  # in the order of their names, which says nothing of their grades
            return {query: dict.fromkeys(sorted(grades), 0.0) for query, grades in self._judged(split).qrels.items()}
        if kind == SCORED:
            run: Run = {}
            for name in part.datasets:
                run |= datasets.read_scored(datasets.load(name), name, depth)
            return run
        run = read_run(trec.existing(self.base, kind))
        return {query: dict(list(scores.items())[:depth]) for query, scores in run.items()}

    def _told(self, split: str) -> str:
        """How a split is made of others."""
        folds = self.description.folds
        which = f"round {max(self.fold, 1)} of {folds if isinstance(folds, int) else len(folds)}"
        return f"{which}, of {', '.join(self._read_from(split))}"

    def _plan_documents(self) -> str:
        source = self.description.documents
        if not isinstance(source, str):
            return f"documents: {source.format} files {source.path}"
        dataset = datasets.load(source)
        fields = ", ".join(dataset.docs_cls()._fields)
        return f"documents: {_told_count(dataset, 'docs')} of ir_datasets {source} ({fields})"

    def _plan_part(self, part: Part) -> str:
        """What a split reads. Raises CollectionError where a data set lacks what is asked of it."""
        told = [_plan_queries(name, part, self.description.field) for name in part.datasets]
        told += [f"queries {part.queries.path}"] if part.queries else []
        told += [f"judgements {part.qrels}"] if part.qrels else []
        if not part.datasets and not (part.queries and part.qrels):
            raise CollectionError(f"{self.name}: a split needs datasets, or files of queries and of qrels")
        return "; ".join([*told, f"candidates: {self._plan_candidates(part)}"])

    def _plan_candidates(self, part: Part) -> str:
        kind = part.candidates or self.description.candidates
        if kind == JUDGED:
            return "every judged document"
        if kind != SCORED:
            return f"the best {self.description.depth} of {kind}"
        lacking = [name for name in part.datasets if not datasets.load(name).has(SCORED)]
        if lacking or not part.datasets:
            where = f"ir_datasets {lacking[0]} has no scoreddocs" if lacking else "TREC files have no scoreddocs"
            raise CollectionError(f"{self.name}: {where}; name a TREC run in a YAML file as candidates, or say judged")
        counts = ", ".join(_told_count(datasets.load(name), SCORED) for name in part.datasets)
        return f"the best {self.description.depth} of its scoreddocs ({counts})"

    def _files(self, part: Part) -> list[str]:
        kind = part.candidates or self.description.candidates
        files = [part.queries.path if part.queries else None, part.qrels, None if kind in (SCORED, JUDGED) else kind]
        return [file for file in files if file]


def _plan_queries(name: str, part: Part, field: str | None) -> str:
    dataset = datasets.load(name)
    for kind in [k for k, file in (("queries", part.queries), ("qrels", part.qrels)) if not file]:
        if not dataset.has(kind):
            raise CollectionError(f"ir_datasets {name} has no {kind}")
    if field and not part.queries and field not in dataset.queries_cls()._fields:
        known = ", ".join(dataset.queries_cls()._fields)
        raise CollectionError(f"ir_datasets {name}: its queries have no field {field!r}; they have {known}")
    return f"ir_datasets {name}, {_told_count(dataset, 'queries')} queries, {_told_count(dataset, 'qrels')} judgements"


def _plan_passages(name: str) -> str:
    dataset = datasets.load(name)
    for kind in ("docs", "qrels"):
        if not dataset.has(kind):
            raise CollectionError(f"ir_datasets {name} has no {kind}: it says no gold passages")
    return f"{_told_count(dataset, 'qrels')} of ir_datasets {name}"


def _told_count(dataset: Any, kind: str) -> str:
    number = datasets.count(dataset, kind)
    return "?" if number is None else f"{number:,}"
