"""A collection directory: documents, queries, judgements, gold passages and first-stage runs.

Layout: ``corpus.jsonl[.gz]`` {"_id", "title", "text"}; ``queries.jsonl[.gz]`` {"_id", "text"}; ``qrels.tsv[.gz]`` lines of query 0
document grade; ``splits/NAME.txt`` query ids; ``run.SPLIT.bm25.trec[.gz]``; ``spans.jsonl[.gz]`` {"qid", "docid", "start", "end"}
with character offsets.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from training.lines import FileError, numbered_lines
from training.runs import Run, read_run


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


@dataclass(frozen=True)
class Collection:
    """A collection directory, read when asked. Raises CollectionError for what is not there, FileError for what is damaged."""

    path: Path

    def __post_init__(self) -> None:
        if not self.path.is_dir():
            raise CollectionError(f"{self.path}: no such collection directory")

    @property
    def name(self) -> str:
        """The directory's name."""
        return self.path.resolve().name

    @cached_property
    def documents(self) -> dict[str, Document]:
        """Documents by id."""
        rows = self._json_lines("corpus.jsonl", {"_id": str, "text": str})
        return {row["_id"]: Document(row["_id"], str(row.get("title") or ""), row["text"]) for row in rows}

    @cached_property
    def queries(self) -> dict[str, str]:
        """Query texts by id."""
        return {row["_id"]: row["text"] for row in self._json_lines("queries.jsonl", {"_id": str, "text": str})}

    @cached_property
    def qrels(self) -> dict[str, dict[str, int]]:
        """Grades by query and document."""
        grades: dict[str, dict[str, int]] = {}
        path = self._find("qrels.tsv")
        for number, line in numbered_lines(path):
            try:
                query, _, document, grade = line.split()
                grades.setdefault(query, {})[document] = int(grade)
            except ValueError:
                raise FileError(f"{path}: line {number} must be 'query 0 document grade', not {line.strip()[:80]!r}") from None
        return grades

    @cached_property
    def spans(self) -> dict[str, list[Span]]:
        """Gold passages by query; none in a collection without spans.jsonl."""
        spans: dict[str, list[Span]] = {}
        if not self._has("spans.jsonl"):
            return spans
        for row in self._json_lines("spans.jsonl", {"qid": str, "docid": str, "start": int, "end": int}):
            spans.setdefault(row["qid"], []).append(Span(row["docid"], row["start"], row["end"]))
        return spans

    def document(self, doc_id: str) -> Document:
        """A document by id. Raises CollectionError when the corpus lacks it."""
        if doc_id not in self.documents:
            raise CollectionError(f"{self.path}: a run or qrels.tsv names document {doc_id!r}, which corpus.jsonl lacks")
        return self.documents[doc_id]

    def query(self, query_id: str) -> str:
        """A query's text by id. Raises CollectionError when the queries lack it."""
        if query_id not in self.queries:
            raise CollectionError(f"{self.path}: a run or split names query {query_id!r}, which queries.jsonl lacks")
        return self.queries[query_id]

    def split(self, name: str) -> list[str]:
        """The query ids of a split, in file order; at least one."""
        path = self._find(f"splits/{name}.txt")
        queries = [line.strip() for _, line in numbered_lines(path)]
        if not queries:
            raise CollectionError(f"{path}: names no query")
        return queries

    def run(self, split: str) -> Run:
        """The first-stage BM25 run of a split ('dev.small' reads the run of 'dev'); of at least one query."""
        path = self._find(f"run.{split.partition('.')[0]}.bm25.trec")
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


def distinct_names(collections: Sequence[Collection]) -> list[str]:
    """The collections' names, by which recipes and tables tell them apart. Raises CollectionError when two share one."""
    names = [collection.name for collection in collections]
    if len(set(names)) < len(names):
        raise CollectionError(f"two of the collections have one name ({', '.join(names)}): rename a directory")
    return names
