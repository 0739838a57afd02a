"""Collections: documents, queries, judgements, gold passages and first-stage runs, from files and `ir_datasets`.

A collection is named by

- a directory: ``corpus.jsonl[.gz]`` {"_id", "title", "text"}; ``queries.jsonl[.gz]`` {"_id", "text"}; ``qrels.tsv[.gz]`` lines of
  query 0 document grade; ``splits/NAME.txt`` query ids; ``run.SPLIT.bm25.trec[.gz]``, if any; ``spans.jsonl[.gz]`` {"qid", "docid",
  "start", "end"} with character offsets;
- a YAML file that says which TREC files and `ir_datasets` names to read, or a directory with such a ``collection.yaml``: see
  training.data.descriptions;
- ``ir_datasets:NAME``, for example ``ir_datasets:msmarco-document``.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from training.data import datasets
from training.data.descriptions import JUDGED, SCORED, find_description, is_described
from training.data.directory import read_qrels, run_file
from training.data.files import json_lines, numbered_lines, read_run
from training.data.folds import Round
from training.data.types import CollectionError, Document, FileError, Grades, Run, Span, find_passage

MOST_UNKNOWN = 0.2  # share of the judgements that may name documents which the corpus lacks


class Collection:
    """A collection by its name: a directory, or a DescribedCollection. Each part is read at its first use.

    Every member raises CollectionError for a missing part, FileError for a damaged one.
    """

    corpus = "corpus.jsonl"
    topics = "queries.jsonl"

    def __new__(cls, path: Path) -> "Collection":
        """The class of the kind of collection that the path names."""
        return super().__new__(DescribedCollection if is_described(path) else cls)

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir():
            raise CollectionError(f"{path}: no such collection directory")

    @property
    def name(self) -> str:
        """The directory's or the description's name; a data set's with dashes for slashes."""
        return self.path.resolve().name

    @cached_property
    def documents(self) -> Mapping[str, Document]:
        """Documents by id: a directory's in memory; a described collection's on disk, and each look-up reads one."""
        rows = self._json_lines("corpus.jsonl", {"_id": str, "text": str})
        return {row["_id"]: Document(row["_id"], str(row.get("title") or ""), row["text"]) for row in rows}

    @cached_property
    def queries(self) -> dict[str, str]:
        """Query texts by id, at least those of every split that was read so far."""
        return {row["_id"]: row["text"] for row in self._json_lines("queries.jsonl", {"_id": str, "text": str})}

    @cached_property
    def qrels(self) -> Grades:
        """Grades by query and document, at least those of every split that was read so far."""
        return read_qrels(self._find("qrels.tsv"))

    @cached_property
    def spans(self) -> Mapping[str, list[Span]]:
        """Gold passages by query; empty without any. Raises CollectionError for one that holds no character."""
        spans: dict[str, list[Span]] = {}
        if not self._has("spans.jsonl"):
            return spans
        for row in self._json_lines("spans.jsonl", {"qid": str, "docid": str, "start": int, "end": int}):
            span = Span(row["docid"], row["start"], row["end"])
            if not 0 <= span.start < span.end:
                named = f"{self._find('spans.jsonl')}: the passage of query {row['qid']!r} in document {span.doc_id!r}"
                raise CollectionError(
                    f"{named} goes from {span.start} to {span.end}: it has to start at 0 or later, and end after that"
                )
            spans.setdefault(row["qid"], []).append(span)
        return spans

    @property
    def has_spans(self) -> bool:
        """Whether there are gold passages; nothing is read to find out."""
        return self._has("spans.jsonl")

    def present(self, doc_ids: Sequence[str]) -> list[str]:
        """The ids that the corpus has; equal ids share one string. A store on disk is not searched: a run may name millions."""
        return [self.documents[doc_id].doc_id for doc_id in doc_ids if doc_id in self.documents]

    def unknown_judgements(self) -> str | None:
        """A line about judgements of documents that the corpus lacks, which are left out; None without any.

        Raises CollectionError where they are more than MOST_UNKNOWN: they are of another corpus, or its ids are written otherwise.
        """
        judged = [document for grades in self.qrels.values() for document in grades]
        unknown = [document for document in judged if document not in self.documents]
        if not unknown:
            return None
        counted = f"{len(unknown):,} of {len(judged):,} name a document that {self.corpus} lacks"
        if len(unknown) > MOST_UNKNOWN * len(judged):
            raise CollectionError(f"{self.path}: of its judgements {counted}, the first is {unknown[0]!r}: {MOST_UNKNOWN:.0%} may")
        return f"judgements: {counted}; they are left out"

    def split(self, name: str) -> list[str]:
        """The query ids of a split, in the order of its file; at least one."""
        path = self._find(f"splits/{name}.txt")
        queries = [line.strip() for _, line in numbered_lines(path)]
        if not queries:
            raise CollectionError(f"{path}: names no query")
        return queries

    def has_run(self, split: str) -> bool:
        """Whether there is a first-stage run of a split, damaged or not; without one all documents are searched."""
        return self._has(run_file(split))

    def run(self, split: str) -> Run:
        """The first-stage run of a split, of at least one query; a directory's is of BM25 ('dev.small' reads the run of 'dev')."""
        path = self._find(run_file(split))
        run = read_run(path)
        if not run:
            raise CollectionError(f"{path}: ranks nothing")
        return run

    def _find(self, name: str) -> Path:
        for candidate in (self.path / f"{name}.gz", self.path / name):
            if candidate.exists():
                return candidate
        raise CollectionError(f"{self.path}: has no {name} or {name}.gz")

    def _has(self, name: str) -> bool:
        return (self.path / f"{name}.gz").exists() or (self.path / name).exists()

    def _json_lines(self, name: str, fields: Mapping[str, type]) -> Iterator[dict[str, Any]]:
        """The objects of a file. Raises FileError for a line that is not JSON or lacks a field, with its number."""
        path = self._find(name)
        for number, line, row in json_lines(path):
            for field, kind in fields.items():
                if not isinstance(row, dict) or not isinstance(row.get(field), kind):
                    raise FileError(f"{path}: line {number} has no {field!r} that is a {kind.__name__}: {line.strip()[:80]}")
            yield row

    def document(self, doc_id: str) -> Document:
        """A document by id. Raises CollectionError when the corpus lacks it."""
        try:
            return self.documents[doc_id]
        except KeyError:
            lacks = f"a run or qrels.tsv names document {doc_id!r}, which {self.corpus} lacks"
            raise CollectionError(f"{self.path}: {lacks}") from None

    def query(self, query_id: str) -> str:
        """A query's text by id. Raises CollectionError when the queries lack it."""
        if query_id not in self.queries:
            raise CollectionError(f"{self.path}: a run or split names query {query_id!r}, which {self.topics} lacks")
        return self.queries[query_id]

    def require(self, doc_ids: Sequence[str]) -> list[str]:
        """As `present`, but raises CollectionError for the first document that the corpus lacks."""
        present = self.present(doc_ids)
        for missing in [doc_id for doc_id in doc_ids if doc_id not in present] if len(present) < len(doc_ids) else ():
            self.document(missing)
        return present


def distinct_names(collections: Sequence[Collection]) -> list[str]:
    """The collections' names, by which recipes and tables tell them apart. Raises CollectionError when two share one."""
    names = [collection.name for collection in collections]
    if len(set(names)) < len(names):
        raise CollectionError(f"two of the collections have one name ({', '.join(names)}): rename a directory")
    return names


class AlignedSpans(Mapping[str, list[Span]]):
    """Gold passages by query. A query's passages are searched at its first look-up.

    Args:
        relevant: grades of documents by query.
        judged: grades of passages by query.
        documents: the documents by id.
        passages: the passages by id.
    """

    def __init__(
        self, relevant: Grades, judged: Grades, documents: Mapping[str, Document], passages: Mapping[str, Document]
    ) -> None:
        self.relevant = relevant
        self.judged = judged
        self.documents = documents
        self.passages = passages
        self._found: dict[str, list[Span]] = {}

    def __getitem__(self, query: str) -> list[Span]:
        if query not in self._found:
            self._found[query] = self._look(query)
        if not self._found[query]:
            raise KeyError(query)
        return self._found[query]

    def _look(self, query: str) -> list[Span]:
        texts = [self.passages[passage].text for passage in _positive(self.judged, query) if passage in self.passages]
        spans = []
        for doc_id in (d for d in _positive(self.relevant, query) if d in self.documents):
            places = (find_passage(self.documents[doc_id].text, text) for text in texts)
            spans += [Span(doc_id, *place) for place in places if place]
        return spans

    def __iter__(self) -> Iterator[str]:
        return (query for query in self.relevant if query in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _positive(grades: Grades, query: str) -> list[str]:
    return [name for name, grade in grades.get(query, {}).items() if grade > 0]


class Judged(NamedTuple):
    """Queries that have a relevant document, and their judgements."""

    queries: dict[str, str]
    qrels: Grades


class DescribedCollection(Collection):
    """What a YAML file or a data set's name describes. Each split is read at its first use: unused files may be missing."""

    topics = "the queries"

    def __init__(self, path: Path) -> None:
        self.path = path
        self.description, self.base, fold = find_description(path)
        self.round = Round(self.description, fold)
        self.corpus = self.description.documents if isinstance(self.description.documents, str) else self.description.documents.path
        self.queries, self.qrels = {}, {}  # of the splits that were read so far
        self._splits: dict[str, Judged] = {}

    @property
    def name(self) -> str:
        """The description's name, with the number of the fold if one was named."""
        return self.round.name

    @cached_property
    def documents(self) -> Mapping[str, Document]:
        """See Collection; in a store on disk."""
        return datasets.StoredDocuments(self._handler(), self.corpus)

    def _handler(self) -> Any:
        source = self.description.documents
        return datasets.load(source) if isinstance(source, str) else datasets.file_documents(source, self.base)

    @cached_property
    def spans(self) -> Mapping[str, list[Span]]:
        """The judged passages that the relevant documents hold word for word."""
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
        """All of the ids: a document that the store lacks is an error when it is read."""
        return list(doc_ids)

    def unknown_judgements(self) -> None:
        """Nothing: the store is not searched."""

    def split(self, name: str) -> list[str]:
        """See Collection; in the order of the topics."""
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
        for name in self.round.sources(split):
            found |= self._candidates(name)
        run = {query: found[query] for query in self._judged(split).queries if query in found}
        if not run:
            raise CollectionError(f"{self.name}: split {split} has no candidates")
        return run

    def _judged(self, split: str) -> Judged:
        if split not in self._splits:
            judged = self._splits[split] = self._combine(split) if self.round.combines(split) else self._read(split)
            self.queries.update(judged.queries)
            self.qrels.update(judged.qrels)
        return self._splits[split]

    def _combine(self, split: str) -> Judged:
        """A split of a round of cross-validation."""
        parts = [self._judged(name) for name in self.round.sources(split)]
        queries = {query: text for part in parts for query, text in part.queries.items()}
        qrels = {query: grades for part in parts for query, grades in part.qrels.items()}
        members = self.round.members(split, queries)
        queries = {query: text for query, text in queries.items() if query in members}
        return Judged(queries, {query: qrels[query] for query in queries})

    def _read(self, split: str) -> Judged:
        part = self.description.part(split)
        loaded = [(name, datasets.load(name)) for name in part.datasets]
        if part.queries:
            queries = datasets.read_topics(part.queries, self.base, self.description.field)
        else:
            queries = {
                q: text for name, data in loaded for q, text in datasets.read_queries(data, name, self.description.field).items()
            }
        if part.qrels:
            qrels = read_qrels(datasets.existing(self.base, part.qrels))
        else:
            qrels = {q: grades for name, data in loaded for q, grades in datasets.read_grades(data, name).items()}
        usable = {query: text for query, text in queries.items() if any(grade > 0 for grade in qrels.get(query, {}).values())}
        return Judged(usable, {query: qrels[query] for query in usable})

    def _candidates(self, split: str) -> Run:
        part = self.description.part(split)
        kind, depth = self.description.candidates_of(part), self.description.depth
        if kind == JUDGED:  # sorted by id: the order must not reveal the grades
            return {query: dict.fromkeys(sorted(grades), 0.0) for query, grades in self._judged(split).qrels.items()}
        if kind == SCORED:
            run: Run = {}
            for name in part.datasets:
                run |= datasets.read_scored(datasets.load(name), name, depth)
            return run
        run = read_run(datasets.existing(self.base, kind))
        return {query: dict(list(scores.items())[:depth]) for query, scores in run.items()}
