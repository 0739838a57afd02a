"""Reads text files line by line, gzipped or not; any damage raises FileError."""

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from training.collections.types import FileError


def open_text(path: Path, mode: str = "r") -> IO[str]:
    """Open a text file to read ("r") or write ("w"); gzipped if its name ends in .gz, with no time stamp: same text, same bytes."""
    if path.suffix != ".gz":
        return path.open(mode, encoding="utf-8")
    return io.TextIOWrapper(gzip.GzipFile(path, f"{mode}b", mtime=0), encoding="utf-8")


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers from 1. Raises FileError for a file that is cut short or not text."""
    try:
        with open_text(path) as lines:
            yield from ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise FileError(f"{path}: damaged, copy it again ({error})") from None
