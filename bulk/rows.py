"""Reads rows of JSON lines and Parquet files. Each row has its place, so that an error can name it."""

import gzip
import json
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from bulk.errors import BulkError, one_line

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
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as lines:
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
            for batch in file.iter_batches(batch_size=ROWS_AT_ONCE, use_threads=False):
                for fields in batch.to_pylist():
                    number += 1
                    yield Row(f"{path}, row {number}", fields)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise BulkError(f"{path}: cannot be read as Parquet ({one_line(error)}); copy it again") from None
    except OSError as error:
        raise BulkError(f"{path}: cannot be read: {error.strerror}") from None
