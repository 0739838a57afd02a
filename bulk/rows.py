"""Reads rows of JSON lines and Parquet files, and with them a collection in the layout of training. A row knows its place."""

import gzip
import json
import zlib
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bulk.errors import BulkError, one_line
from keyblock.text.tokenizer import without_surrogates

KINDS = (".jsonl.gz", ".jsonl", ".parquet")  # of a collection's files
FIELDS = ["qid", "query", "documents", "docid", "id", "_id", "title", "text", "score"]  # that are read of a Parquet file
ROWS_AT_ONCE = 256  # read from a Parquet file: a row may hold a hundred long documents


class Row(NamedTuple):
    """A row of a file.

    Attributes:
        place: the file and the number of the line or row, from 1, for error messages.
        fields: the values by name.
    """

    place: str
    fields: Mapping[str, Any]


def read_rows(path: Path) -> Iterator[Row]:
    """The rows of a file: Parquet if its name ends in .parquet, else JSON lines. Raises BulkError."""
    return _parquet_rows(path) if path.suffix == ".parquet" else _json_rows(path)


def read_lines(path: Path) -> Iterator[tuple[str, str]]:
    """The lines that are not blank, each with its place. Raises BulkError for a file that is missing, truncated or not text."""
    try:
        with gzip.open(path, "rt", encoding="utf-8-sig") if path.suffix == ".gz" else path.open(encoding="utf-8-sig") as lines:
            yield from ((f"{path}, line {number}", line) for number, line in enumerate(lines, 1) if line.strip())
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise BulkError(f"{path}: is damaged, or no text in UTF-8; copy it again ({one_line(error)})") from None
    except OSError as error:
        raise BulkError(f"{path}: cannot be read: {error.strerror}") from None


def _json_rows(path: Path) -> Iterator[Row]:
    for place, line in read_lines(path):
        try:
            fields = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BulkError(f"{place}: is not JSON ({one_line(error)}): write an object a line") from None
        if not isinstance(fields, dict):
            raise BulkError(f"{place}: is JSON, but no object: {line.strip()[:80]}")
        yield Row(place, fields)


def _parquet_rows(path: Path) -> Iterator[Row]:
    try:
        with path.open("rb") as content, pq.ParquetFile(content) as file:
            number = 0
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, columns=FIELDS, use_threads=False):
                for fields in batch.to_pylist():
                    number += 1
                    yield Row(f"{path}, row {number}", fields)
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise BulkError(f"{path}: cannot be read as Parquet ({one_line(error)}); copy it again") from None
    except OSError as error:
        raise BulkError(f"{path}: cannot be read: {error.strerror}") from None


def read_documents(collection: Path, wanted: Collection[str]) -> Iterator[tuple[str, str, str]]:
    """Docid, title and text of the wanted documents of a collection's corpus, in its order. Raises BulkError."""
    for row in read_rows(find(collection, "corpus")):
        if (docid := _field(row, "_id")) in wanted:
            title = row.fields.get("title")
            yield docid, without_surrogates(title) if isinstance(title, str) else "", _field(row, "text")


def read_queries(collection: Path) -> dict[str, str]:
    """The text of each of a collection's queries, by name. Raises BulkError."""
    return {_field(row, "_id"): _field(row, "text") for row in read_rows(find(collection, "queries"))}


def find(collection: Path, name: str) -> Path:
    """The collection's file of that name, in any of `KINDS`. Raises BulkError if there is none."""
    if (path := look_for(collection, name)) is None:
        names = ", ".join(f"{name}{kind}" for kind in KINDS)
        raise BulkError(f"{collection}: has none of {names}; name the collection's directory")
    return path


def look_for(collection: Path, name: str) -> Path | None:
    """The collection's file of that name, or None."""
    return next((path for kind in KINDS if (path := collection / f"{name}{kind}").is_file()), None)


def _field(row: Row, name: str) -> str:
    value = row.fields.get(name)
    if not isinstance(value, str):
        raise BulkError(f"{row.place}: has no {name!r} that is a text")
    return without_surrogates(value)
