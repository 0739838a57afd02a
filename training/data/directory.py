"""A collection directory in our own layout: see training.data.collection."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from training.data.collection import Collection
from training.data.files import json_lines, numbered_lines, open_text, read_run
from training.data.types import CollectionError, Document, FileError, Grades, Run, Span

MOST_UNKNOWN = 0.2  # share of the judgements that may name documents which the corpus lacks


@dataclass(frozen=True)
class Directory(Collection):
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
        """See Collection; all are in memory."""
        rows = self._json_lines("corpus.jsonl", {"_id": str, "text": str})
        return {row["_id"]: Document(row["_id"], str(row.get("title") or ""), row["text"]) for row in rows}

    @cached_property
    def queries(self) -> dict[str, str]:
        """Query texts of every split."""
        return {row["_id"]: row["text"] for row in self._json_lines("queries.jsonl", {"_id": str, "text": str})}

    @cached_property
    def qrels(self) -> Grades:
        """Grades of every split."""
        return read_qrels(self._find("qrels.tsv"))

    @cached_property
    def spans(self) -> dict[str, list[Span]]:
        """Empty without a spans.jsonl. Raises CollectionError for a span that holds no character."""
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
        """See Collection."""
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
        """See Collection; in file order."""
        path = self._find(f"splits/{name}.txt")
        queries = [line.strip() for _, line in numbered_lines(path)]
        if not queries:
            raise CollectionError(f"{path}: names no query")
        return queries

    def has_run(self, split: str) -> bool:
        """Whether there is a run file."""
        return self._has(run_file(split))

    def run(self, split: str) -> Run:
        """The BM25 run ('dev.small' reads the run of 'dev')."""
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


def run_file(split: str) -> str:
    """The name of a split's run, without .gz; a dot and what follows it do not count."""
    return f"run.{split.partition('.')[0]}.bm25.trec"


def read_qrels(path: Path) -> Grades:
    """Read judgements of TREC (``query 0 document grade``), or of BEIR with its header. Raises FileError naming a bad line."""
    grades: Grades = {}
    beir = False
    for number, line in numbered_lines(path):
        if number == 1 and line.split() == ["query-id", "corpus-id", "score"]:
            beir = True
            continue
        try:
            query, *unused, document, grade = line.split()
            if len(unused) != (not beir):
                raise ValueError
            grades.setdefault(query, {})[document] = int(grade)
        except ValueError:
            due = "query document grade" if beir else "query 0 document grade"
            raise FileError(f"{path}: line {number} must be {due!r}, not {line.strip()[:80]!r}") from None
    return grades


def write_directory(
    path: Path,
    documents: Iterable[Document],
    queries: Mapping[str, str],
    spans: Mapping[str, Sequence[Span]],
    splits: Mapping[str, Sequence[str]],
    qrels: Grades | None = None,
) -> None:
    """Write a new collection without first-stage runs; without `qrels`, a document that holds a query's span has grade 1.

    Raises FileExistsError for a directory that exists.
    """
    path.mkdir(parents=True)
    _write_rows(path / "corpus.jsonl.gz", ({"_id": d.doc_id, "title": d.title, "text": d.text} for d in documents))
    _write_rows(path / "queries.jsonl.gz", ({"_id": query, "text": text} for query, text in queries.items()))
    rows = [(query, span) for query, gold in spans.items() for span in gold]
    if rows:
        _write_rows(path / "spans.jsonl.gz", ({"qid": q, "docid": s.doc_id, "start": s.start, "end": s.end} for q, s in rows))
    if qrels is None:
        qrels = {query: dict.fromkeys((span.doc_id for span in gold), 1) for query, gold in spans.items()}
    with open_text(path / "qrels.tsv.gz", "w") as out:
        out.writelines(f"{query}\t0\t{document}\t{grade}\n" for query, of in qrels.items() for document, grade in of.items())
    (path / "splits").mkdir()
    for name, members in splits.items():
        (path / "splits" / f"{name}.txt").write_text("\n".join(members) + "\n", encoding="utf-8")


def _write_rows(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    with open_text(path, "w") as out:
        out.writelines(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
