"""A collection directory: documents, queries, judgements, gold passages and first-stage runs.

Layout: ``corpus.jsonl[.gz]`` {"_id", "title", "text"}; ``queries.jsonl[.gz]`` {"_id", "text"}; ``qrels.tsv[.gz]`` lines of query 0
document grade; ``splits/NAME.txt`` query ids; ``run.SPLIT.bm25.trec[.gz]``; ``spans.jsonl[.gz]`` {"qid", "docid", "start", "end"}
with character offsets.
"""

import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import IO, Any, NamedTuple

from training.runs import Run, read_run


class CollectionError(ValueError):
    """A collection, or a part of it, is missing or damaged; the message is one line for a person."""


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
    """A collection directory, read when asked. Raises CollectionError for what is not there."""

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
        rows = self._json_lines("corpus.jsonl")
        return {row["_id"]: Document(row["_id"], row.get("title") or "", row["text"]) for row in rows}

    @cached_property
    def queries(self) -> dict[str, str]:
        """Query texts by id."""
        return {row["_id"]: row["text"] for row in self._json_lines("queries.jsonl")}

    @cached_property
    def qrels(self) -> dict[str, dict[str, int]]:
        """Grades by query and document."""
        grades: dict[str, dict[str, int]] = {}
        with self._open("qrels.tsv") as lines:
            for line in lines:
                query, _, document, grade = line.split()
                grades.setdefault(query, {})[document] = int(grade)
        return grades

    @cached_property
    def spans(self) -> dict[str, list[Span]]:
        """Gold passages by query."""
        spans: dict[str, list[Span]] = {}
        for row in self._json_lines("spans.jsonl"):
            spans.setdefault(row["qid"], []).append(Span(row["docid"], row["start"], row["end"]))
        return spans

    def split(self, name: str) -> list[str]:
        """The query ids of a split, in file order."""
        with self._open(f"splits/{name}.txt") as lines:
            return [line.strip() for line in lines if line.strip()]

    def run(self, split: str) -> Run:
        """The first-stage BM25 run of a split ('dev.small' reads the run of 'dev')."""
        return read_run(self._find(f"run.{split.partition('.')[0]}.bm25.trec"))

    def _find(self, name: str) -> Path:
        for candidate in (self.path / f"{name}.gz", self.path / name):
            if candidate.exists():
                return candidate
        raise CollectionError(f"{self.path}: has no {name} or {name}.gz")

    def _open(self, name: str) -> IO[str]:
        return open_text(self._find(name))

    def _json_lines(self, name: str) -> Iterator[dict[str, Any]]:
        with self._open(name) as lines:
            for number, line in enumerate(lines, 1):
                try:
                    yield json.loads(line)
                except ValueError as error:
                    raise CollectionError(f"{self.path}/{name}: line {number} is not JSON ({error})") from None


def open_text(path: Path) -> IO[str]:
    """Open a text file, gzipped or not."""
    return gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8")
