"""Reads collections of TREC files and `ir_datasets` names, as training.data.descriptions describes them."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from training.data import datasets
from training.data.collection import Collection
from training.data.descriptions import JUDGED, SCORED, find_description
from training.data.directory import read_qrels
from training.data.files import read_run
from training.data.folds import Round
from training.data.types import CollectionError, Document, Grades, Run, Span, find_passage


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
