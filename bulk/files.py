"""Writes files whole or not at all."""

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

PARTIAL = ".partial"


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """A temporary path to write to. When the block ends, the file is synced to the disk and renamed to `path`."""
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}{PARTIAL}")
    try:
        yield partial
        _sync(partial)
        partial.replace(path)
        _sync(path.parent)
    finally:
        partial.unlink(missing_ok=True)


def write_whole(path: Path, text: str) -> None:
    """Write a text file whole or not at all."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def write_once(path: Path, text: str) -> str:
    """Write a small file, unless another process on any machine wrote it first. Returns the text that the file holds."""
    partial = path.with_name(f"{path.name}.{uuid.uuid4().hex}{PARTIAL}")
    partial.write_text(text, encoding="utf-8")
    with suppress(FileExistsError):
        os.link(partial, path)
    partial.unlink()
    return path.read_text(encoding="utf-8")


def sweep(*directories: Path) -> None:
    """Remove the partial files of killed processes."""
    for directory in directories:
        for partial in directory.glob(f"*{PARTIAL}"):
            partial.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
