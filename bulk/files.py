"""Files that are there whole or not at all."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PARTIAL = ".partial"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A name to write under; what stands there when the block ends is synced to the disk and becomes `path`, all of it at once."""
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}{PARTIAL}")
    try:
        yield partial
        _sync(partial)
        partial.replace(path)
        _sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """A text file that is there whole or not at all."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_once(path: Path, text: str) -> str:
    """What stands in a small file: this text, unless another process was first, on whatever machine."""
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}{PARTIAL}")
    partial.write_text(text, encoding="utf-8")
    with suppress(FileExistsError):
        os.link(partial, path)
    partial.unlink()
    return path.read_text(encoding="utf-8")


def sweep(*directories: Path) -> None:
    """Remove what processes that were killed left half written."""
    for directory in directories:
        for partial in directory.glob(f"*{PARTIAL}"):
            partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
