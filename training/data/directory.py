"""Reads and writes files of a collection directory in our own layout: see training.data.collection."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from training.data.files import numbered_lines, open_text
from training.data.types import Document, FileError, Grades, Span


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
