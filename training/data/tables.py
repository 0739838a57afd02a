"""Makes a collection of a table: a row for each question with a document, and how relevant it is or the passage that answers."""

import csv
import math
import random
import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from training.data.directory import write_directory
from training.data.files import json_lines, open_text
from training.data.types import Document, FileError, Grades, Span, find_passage

COLUMNS = {  # what a column may be called
    "question": ("question", "query"),
    "document": ("document", "text"),
    "path": ("path", "file"),
    "title": ("title",),
    "relevant": ("relevant", "grade", "relevance", "label"),
    "passage": ("passage", "answer"),
    "split": ("split",),
}
GRADES = {"true": 1, "yes": 1, "false": 0, "no": 0}
LEAST_DEV = 10  # queries: keyblock-calibrate learns from no fewer
Row = Mapping[str, Any]


@dataclass
class Table:
    """What was read of a table.

    Attributes:
        documents: by their text, or by their path.
        queries: the id of each question, by its text.
        grades: by query and document.
        spans: gold passages by query.
        splits: the split of each query whose row names one.
        notes: what a person should know about rows, with their number.
    """

    documents: dict[str, Document] = field(default_factory=dict)
    queries: dict[str, str] = field(default_factory=dict)
    grades: Grades = field(default_factory=dict)
    spans: dict[str, list[Span]] = field(default_factory=dict)
    splits: dict[str, str] = field(default_factory=dict)
    notes: dict[str, int] = field(default_factory=dict)

    def note(self, what: str) -> None:
        """Count what a person should know."""
        self.notes[what] = self.notes.get(what, 0) + 1


def read_rows(path: Path) -> Iterator[tuple[int, Row]]:
    """The rows of a CSV, TSV, JSON lines or Parquet file, numbered by line (Parquet: by row).

    Raises FileError for a file of another kind, a damaged one, and Parquet without pyarrow.
    """
    kind = path.name.removesuffix(".gz").rpartition(".")[2].lower()
    if kind in ("csv", "tsv"):
        yield from _read_csv(path, kind)
    elif kind in ("jsonl", "ndjson"):
        yield from _read_json_lines(path)
    elif kind == "parquet":
        yield from _read_parquet(path)
    else:
        raise FileError(f"{path}: is of no kind that is read; give .csv, .tsv, .jsonl (each also .gz) or .parquet")


def _read_csv(path: Path, kind: str) -> Iterator[tuple[int, Row]]:
    csv.field_size_limit(sys.maxsize)  # a cell holds a whole document
    try:
        with open_text(path) as lines:
            head = lines.readline().lstrip("\ufeff")
            delimiter = "\t" if kind == "tsv" else max(",;\t", key=head.count)
            names = next(csv.reader([head], delimiter=delimiter), [])
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            for cells in reader:
                if cells:
                    if len(cells) != len(names):
                        raise FileError(f"{path}: line {reader.line_num + 1} has {len(cells)} cells, its header has {len(names)}")
                    yield reader.line_num + 1, dict(zip(names, cells, strict=True))
    except (csv.Error, UnicodeDecodeError, EOFError) as error:
        raise FileError(f"{path}: cannot be read as CSV in UTF-8 ({error})") from None


def _read_json_lines(path: Path) -> Iterator[tuple[int, Row]]:
    for number, line, row in json_lines(path):
        if not isinstance(row, dict):
            raise FileError(f"{path}: line {number} is no JSON object: {line.strip()[:80]}")
        yield number, row


def _read_parquet(path: Path) -> Iterator[tuple[int, Row]]:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise FileError(f"{path}: reading Parquet needs pyarrow (pip install pyarrow); or save the table as .jsonl") from None
    try:
        with parquet.ParquetFile(path) as table:
            rows = (row for batch in table.iter_batches() for row in batch.to_pylist())
            yield from enumerate(rows, 1)
    except pyarrow.ArrowException as error:
        raise FileError(f"{path}: cannot be read as Parquet ({error})") from None


def read_tables(paths: Sequence[Path], folder: Path | None = None, named: Mapping[str, str] | None = None) -> Table:
    """Read tables into one.

    Args:
        paths: the files.
        folder: what paths of documents are relative to; None: the table's own directory.
        named: the name of a column by its meaning (see COLUMNS), for columns of other names.

    Raises FileError for a file or row that cannot be used, with its number.
    """
    table = Table()
    for path in paths:
        keys: Collection[str] = ()
        columns: dict[str, str] = {}
        for number, row in read_rows(path):
            if row.keys() != keys:
                keys, columns = row.keys(), _columns(path, row, named or {})
            values = {meaning: row.get(name) for meaning, name in columns.items()}
            try:
                _add(table, values, folder or path.parent)
            except ValueError as error:
                raise FileError(f"{path}: row {number} {error}") from None
        if not columns:
            raise FileError(f"{path}: has no row")
    return table


def _columns(path: Path, row: Row, named: Mapping[str, str]) -> dict[str, str]:
    """The column of each meaning, if there is one. Raises FileError without a question or a document."""
    lower = {name.strip().lower(): name for name in row}
    found = {meaning: next((lower[name] for name in names if name in lower), None) for meaning, names in COLUMNS.items()}
    if missing := [name for name in named.values() if name not in row]:
        raise FileError(f"{path}: has no column {missing[0]!r}; it has {', '.join(row)}")
    columns = {meaning: name for meaning, name in (found | dict(named)).items() if name is not None}
    for needed in ("question", "document or path"):
        if not any(meaning in columns for meaning in needed.split(" or ")):
            raise FileError(f"{path}: has no column for the {needed}; it has {', '.join(row)}: name it with --column MEANING=NAME")
    return columns


def _add(table: Table, values: Row, folder: Path) -> None:
    """Add a row. Raises ValueError for one that cannot be used."""
    question = str(values.get("question") or "").strip()
    if not question:
        raise ValueError("has no question")
    query = table.queries.setdefault(question, f"q{len(table.queries) + 1}")
    document = _document(table, values, folder)
    grade, passage = _grade(values.get("relevant")), str(values.get("passage") or "").strip()
    if grade is None:
        grade = 1
        if not passage:
            table.note("rows say neither how relevant the document is nor which passage answers: they count as relevant")
    grades = table.grades.setdefault(query, {})
    if grades.get(document.doc_id, grade) != grade:
        table.note("rows judge a pair again, and otherwise: the higher grade counts")
    grades[document.doc_id] = max(grade, grades.get(document.doc_id, grade))
    if passage and grade > 0:
        if (found := find_passage(document.text, passage)) is None:
            table.note("passages do not stand in their documents: their documents count as relevant, without a gold passage")
        elif (span := Span(document.doc_id, *found)) not in table.spans.setdefault(query, []):
            table.spans[query].append(span)
    split = str(values.get("split") or "").strip()
    if split and table.splits.setdefault(query, split) != split:
        raise ValueError(f"puts the question {question[:60]!r} into split {split}, and a row before into {table.splits[query]}")


def _document(table: Table, values: Row, folder: Path) -> Document:
    text, path = str(values.get("document") or ""), str(values.get("path") or "").strip()
    key = text or path
    if not key.strip():
        raise ValueError("has no document")
    if key not in table.documents:
        name = f"d{len(table.documents) + 1}" if text else re.sub(r"\s", "%20", path)  # ids of TREC files hold no white space
        title = str(values.get("title") or "").strip()
        table.documents[key] = Document(name, title, text or _read_document(folder / path))
    return table.documents[key]


def _read_document(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(f"names {path}, which is no text in UTF-8: keyblock text converts PDF, Word, HTML and EPUB") from None
    except OSError as error:
        raise ValueError(f"names {path}, which cannot be read ({error.strerror}); --documents says where documents are") from None


def _grade(value: Any) -> int | None:
    """A grade: a whole number, or yes or no in one of their spellings; None for an empty cell. Raises ValueError."""
    text = str("" if value is None else value).strip().lower()
    if text in ("", "nan"):  # pandas writes an empty cell as nan
        return None
    try:
        grade = float(GRADES.get(text, text))
    except ValueError:
        grade = math.nan
    if not grade.is_integer():
        raise ValueError(f"has {text[:40]!r} where the grade is: a whole number, true or false, yes or no")
    return int(grade)


def deal(table: Table, dev: float, test: float, seed: int) -> dict[str, list[str]]:
    """The queries of each split: as the rows say, or dealt at random. Queries without a relevant document are in none.

    Dev gets at least LEAST_DEV queries where that is at most half of them. Raises FileError if a split has no query.
    """
    answered = [query for query in table.queries.values() if any(grade > 0 for grade in table.grades[query].values())]
    for _ in range(len(table.queries) - len(answered)):
        table.note("questions have no relevant document: they are in no split")
    if table.splits:
        splits: dict[str, list[str]] = {}
        for query in answered:
            if query not in table.splits:
                raise FileError(f"question {query} has no split, and others have one: name one in each row, or none at all")
            splits.setdefault(table.splits[query], []).append(query)
    else:
        mixed = random.Random(seed).sample(answered, len(answered))
        n_test = round(test * len(mixed))
        n_dev = max(round(dev * len(mixed)), min(LEAST_DEV, (len(mixed) - n_test) // 2))
        splits = {"dev": mixed[:n_dev], "test": mixed[n_dev : n_dev + n_test], "train": mixed[n_dev + n_test :]}
    if empty := [name for name in ("train", "dev") if not splits.get(name)]:
        raise FileError(f"{len(answered)} questions have a relevant document, and none is left for split {empty[0]}")
    return {name: queries for name, queries in splits.items() if queries}


def collect(table: Table, out: Path, splits: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Write the table as a collection. Returns the size of each part. Raises FileExistsError for a directory that exists."""
    queries = {query: text for text, query in table.queries.items()}
    write_directory(out, table.documents.values(), queries, table.spans, splits, table.grades)
    return {
        "documents": len(table.documents),
        "questions": len(queries),
        **{f"in {name}": len(members) for name, members in sorted(splits.items())},
        "judgements": sum(map(len, table.grades.values())),
        "gold passages": sum(map(len, table.spans.values())),
    }
