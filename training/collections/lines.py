"""Text files line by line, gzipped or not; damage is one clear error, not whatever the decompressor raises."""

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from training.collections.types import FileError


def open_text(path: Path, mode: str = "r") -> IO[str]:
    """Open a text file to read ("r") or write ("w"); gzipped when its name ends in .gz, without the time: same text, same bytes."""
    if path.suffix != ".gz":
        return path.open(mode, encoding="utf-8")
    return io.TextIOWrapper(gzip.GzipFile(path, f"{mode}b", mtime=0), encoding="utf-8")


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, with their numbers from 1. Raises FileError when the file is cut short or no text."""
    try:
        with open_text(path) as lines:
            yield from ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    except (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError) as error:
        raise FileError(f"{path}: damaged, copy it again ({error})") from None
