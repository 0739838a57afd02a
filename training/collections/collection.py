"""Collections: documents, queries, judgements, gold passages and first-stage runs, from wherever they are kept.

A collection is named by

- a directory: ``corpus.jsonl[.gz]`` {"_id", "title", "text"}; ``queries.jsonl[.gz]`` {"_id", "text"}; ``qrels.tsv[.gz]`` lines of
  query 0 document grade; ``splits/NAME.txt`` query ids; ``run.SPLIT.bm25.trec[.gz]``; ``spans.jsonl[.gz]`` {"qid", "docid",
  "start", "end"} with character offsets;
- a YAML file that says which TREC files and `ir_datasets` names to read, or a directory with such a ``collection.yaml``: see
  training.descriptions;
- ``ir_datasets:NAME``, for example ``ir_datasets:msmarco-document``.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from training.collections.lines import FileError, numbered_lines
from training.collections.runs import Run, read_run

DATASETS = "ir_datasets:"


class CollectionError(FileError):
    """A part of a collection is missing, or its parts do not fit together; the message is one line for a person."""


class Document(NamedTuple):
    """A document as the collection holds it."""

    doc_id: str
    title: str
    text: str


class Span(NamedTuple):
    """A gold passage: offsets in Unicode code points into the document's text."""

    doc_id: str
    start: int
    end: int


Grades = dict[str, dict[str, int]]
"""Grades by query and document."""


class Plan(NamedTuple):
    """What reading a collection would take.

    Attributes:
        reads: what would be read, a line each.
        brings: files that are not there, and that no download brings.
    """

    reads: list[str]
    brings: list[str]


class Parts(ABC):
    """What a collection is read from. Each part is read when asked; CollectionError for what is not there, FileError for damage."""

    corpus: str = "the documents"
    topics: str = "the queries"

    @property
    @abstractmethod
    def name(self) -> str:
        """What the collection is called."""

    @property
    @abstractmethod
    def documents(self) -> Mapping[str, Document]:
        """Documents by id; where there are millions they stay on disk and each look-up reads one."""

    @property
    @abstractmethod
    def queries(self) -> Mapping[str, str]:
        """Query texts by id, at least those of every split asked for so far."""

    @property
    @abstractmethod
    def qrels(self) -> Grades:
        """Grades by query and document, at least those of every split asked for so far."""

    @property
    @abstractmethod
    def spans(self) -> Mapping[str, list[Span]]:
        """Gold passages by query; none where nothing says them."""

    @property
    @abstractmethod
    def has_spans(self) -> bool:
        """Whether anything says gold passages; nothing is read for it."""

    @abstractmethod
    def split(self, name: str) -> list[str]:
        """The query ids of a split; at least one."""

    @abstractmethod
    def run(self, split: str) -> Run:
        """The first-stage run of a split; of at least one query."""

    @abstractmethod
    def present(self, doc_ids: Sequence[str]) -> list[str]:
        """Those of the ids that the corpus has, one string a document; a store on disk is not asked: a run may name millions."""

    @abstractmethod
    def plan(self, splits: Sequence[str]) -> Plan:
        """What would be read for these splits, without reading documents or downloading anything.

        Raises CollectionError for a split, a field or candidates that cannot be had.
        """


@dataclass(frozen=True)
class Collection:
    """A collection by its name, read when asked; see the module for what `path` may be.

    Raises CollectionError for what is not there, FileError for what is damaged.
    """

    path: Path

    def __post_init__(self) -> None:
        _ = self.parts

    @cached_property
    def parts(self) -> Parts:
        """Where its parts are read from."""
        return find_parts(self.path)

    @property
    def name(self) -> str:
        """The directory's or the description's name; a data set's with dashes for slashes."""
        return self.parts.name

    @property
    def documents(self) -> Mapping[str, Document]:
        """See Parts."""
        return self.parts.documents

    @property
    def queries(self) -> Mapping[str, str]:
        """See Parts."""
        return self.parts.queries

    @property
    def qrels(self) -> Grades:
        """See Parts."""
        return self.parts.qrels

    @property
    def spans(self) -> Mapping[str, list[Span]]:
        """See Parts."""
        return self.parts.spans

    def document(self, doc_id: str) -> Document:
        """A document by id. Raises CollectionError when the corpus lacks it."""
        try:
            return self.documents[doc_id]
        except KeyError:
            told = f"a run or qrels.tsv names document {doc_id!r}, which {self.parts.corpus} lacks"
            raise CollectionError(f"{self.path}: {told}") from None

    def query(self, query_id: str) -> str:
        """A query's text by id. Raises CollectionError when the queries lack it."""
        if query_id not in self.queries:
            raise CollectionError(f"{self.path}: a run or split names query {query_id!r}, which {self.parts.topics} lacks")
        return self.queries[query_id]

    def present(self, doc_ids: Sequence[str]) -> list[str]:
        """See Parts."""
        return self.parts.present(doc_ids)

    def require(self, doc_ids: Sequence[str]) -> list[str]:
        """As `present`, but raises CollectionError for the first that is not."""
        present = self.present(doc_ids)
        for missing in [doc_id for doc_id in doc_ids if doc_id not in present] if len(present) < len(doc_ids) else ():
            self.document(missing)
        return present

    def split(self, name: str) -> list[str]:
        """See Parts; a directory's in file order."""
        return self.parts.split(name)

    def run(self, split: str) -> Run:
        """See Parts; of a directory its BM25 run ('dev.small' reads the run of 'dev')."""
        return self.parts.run(split)


def find_parts(path: Path) -> Parts:
    """What a collection's name stands for. Raises CollectionError when that is nothing."""
    from training.collections import descriptions  # they read into what this module declares

    if path.as_posix().startswith(DATASETS):
        return descriptions.named(path.as_posix().removeprefix(DATASETS))
    if found := descriptions.find_description(path):
        return descriptions.described(*found)
    return Directory(path)


@dataclass(frozen=True)
class Directory(Parts):
    """A collection directory in our own layout."""

    path: Path
    corpus = "corpus.jsonl"
    topics = "queries.jsonl"

    def __post_init__(self) -> None:
        if not self.path.is_dir():
            raise CollectionError(f"{self.path}: no such collection directory")

    @property
    def name(self) -> str:
        """The directory's name."""
        return self.path.resolve().name

    @cached_property
    def documents(self) -> dict[str, Document]:
        """All in memory."""
        rows = self._json_lines("corpus.jsonl", {"_id": str, "text": str})
        return {row["_id"]: Document(row["_id"], str(row.get("title") or ""), row["text"]) for row in rows}

    @cached_property
    def queries(self) -> dict[str, str]:
        """Of every split."""
        return {row["_id"]: row["text"] for row in self._json_lines("queries.jsonl", {"_id": str, "text": str})}

    @cached_property
    def qrels(self) -> Grades:
        """Of every split."""
        return read_qrels(self._find("qrels.tsv"))

    @cached_property
    def spans(self) -> dict[str, list[Span]]:
        """None in a collection without spans.jsonl. Raises CollectionError for one that holds no character."""
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
        """Whether there is a spans.jsonl."""
        return self._has("spans.jsonl")

    def present(self, doc_ids: Sequence[str]) -> list[str]:
        """See Parts."""
        return [self.documents[doc_id].doc_id for doc_id in doc_ids if doc_id in self.documents]

    def split(self, name: str) -> list[str]:
        """In file order."""
        path = self._find(f"splits/{name}.txt")
        queries = [line.strip() for _, line in numbered_lines(path)]
        if not queries:
            raise CollectionError(f"{path}: names no query")
        return queries

    def run(self, split: str) -> Run:
        """The BM25 run ('dev.small' reads the run of 'dev')."""
        path = self._find(f"run.{split.partition('.')[0]}.bm25.trec")
        run = read_run(path)
        if not run:
            raise CollectionError(f"{path}: ranks nothing")
        return run

    def plan(self, splits: Sequence[str]) -> Plan:
        """See Parts."""
        judged = [
            f"split {split}: {len(self.split(split)):,} queries, {len(self.run(split)):,} of them in its BM25 run"
            for split in splits
        ]
        return Plan([f"documents: {sum(1 for _ in numbered_lines(self._find('corpus.jsonl'))):,} in {self.path}", *judged], [])

    def _find(self, name: str) -> Path:
        for candidate in (self.path / f"{name}.gz", self.path / name):
            if candidate.exists():
                return candidate
        raise CollectionError(f"{self.path}: has no {name} or {name}.gz")

    def _has(self, name: str) -> bool:
        return (self.path / f"{name}.gz").exists() or (self.path / name).exists()

    def _json_lines(self, name: str, fields: Mapping[str, type]) -> Iterator[dict[str, Any]]:
        """The objects of a file. Raises FileError naming the line of one that lacks a field."""
        path = self._find(name)
        for number, line in numbered_lines(path):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise FileError(f"{path}: line {number} is not JSON ({error})") from None
            for field, kind in fields.items():
                if not isinstance(row, dict) or not isinstance(row.get(field), kind):
                    raise FileError(f"{path}: line {number} has no {field!r} that is a {kind.__name__}: {line.strip()[:80]}")
            yield row


def read_qrels(path: Path) -> Grades:
    """Read TREC judgements (``query 0 document grade``), gzipped or not. Raises FileError naming a bad line."""
    grades: Grades = {}
    for number, line in numbered_lines(path):
        try:
            query, _, document, grade = line.split()
            grades.setdefault(query, {})[document] = int(grade)
        except ValueError:
            raise FileError(f"{path}: line {number} must be 'query 0 document grade', not {line.strip()[:80]!r}") from None
    return grades


def distinct_names(collections: Sequence[Collection]) -> list[str]:
    """The collections' names, by which recipes and tables tell them apart. Raises CollectionError when two share one."""
    names = [collection.name for collection in collections]
    if len(set(names)) < len(names):
        raise CollectionError(f"two of the collections have one name ({', '.join(names)}): rename a directory")
    return names
