"""The files of a job: where they are, how much they hold, and how they are written, whole or not at all."""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

INTAKE = "intake.json"
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
    try:
        os.link(partial, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links; of two processes at the same moment, the last one counts there
        if not path.exists():
            partial.replace(path)
    partial.unlink(missing_ok=True)
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


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a job keeps its files.

    Attributes:
        out: the directory of the rankings.
    """

    out: Path

    @property
    def work(self) -> Path:
        """The directory of intermediate files."""
        return self.out / "work"

    def rankings(self, shard: int) -> Path:
        """The rankings of a shard of lists."""
        return self.out / f"rankings-{shard:05}.parquet"

    def lists(self, shard: int) -> Path:
        """A shard of lists, as taken in."""
        return self.work / f"lists-{shard:05}.arrow"

    def documents(self, shard: int) -> Path:
        """A shard of distinct documents, as taken in."""
        return self.work / f"documents-{shard:05}.arrow"

    def prepared(self, shard: int) -> Path:
        """A shard of prepared documents."""
        return self.work / f"prepared-{shard:05}.arrow"


@dataclass(frozen=True, slots=True)
class Intake:
    """Counts of the intake. The file is written when the intake is complete.

    Attributes:
        pairs: pairs of query and document in each shard of lists.
        documents: documents in each shard of documents.
        n_lists: number of queries.
    """

    pairs: list[int]
    documents: list[int]
    n_lists: int

    @classmethod
    def read(cls, work: Path) -> Self | None:
        """Read the counts that `write` wrote; None if the intake is not complete."""
        path = work / INTAKE
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

    def write(self, work: Path) -> None:
        """Write the counts, which marks the intake as complete."""
        write_whole(work / INTAKE, json.dumps(asdict(self)))
