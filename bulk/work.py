"""The work directory of a job: what stands where, and how much of it."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Self

from bulk.files import write_whole

INTAKE = "intake.json"


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a job keeps its files.

    Attributes:
        out: the rankings' directory.
    """

    out: Path

    @property
    def work(self) -> Path:
        """The directory of what is needed on the way."""
        return self.out / "work"

    def rankings(self, shard: int) -> Path:
        """What is ranked of a shard of lists."""
        return self.out / f"rankings-{shard:05}.parquet"

    def lists(self, shard: int) -> Path:
        """A shard of lists, as they came."""
        return self.work / f"lists-{shard:05}.arrow"

    def documents(self, shard: int) -> Path:
        """A shard of distinct documents, as they came."""
        return self.work / f"documents-{shard:05}.arrow"

    def prepared(self, shard: int) -> Path:
        """The same documents, prepared."""
        return self.work / f"prepared-{shard:05}.arrow"


@dataclass(frozen=True, slots=True)
class Intake:
    """What was taken in; written once all of it is there.

    Attributes:
        pairs: of query and document, in each shard of lists.
        documents: in each shard of documents.
        n_lists: queries.
    """

    pairs: list[int]
    documents: list[int]
    n_lists: int

    @classmethod
    def read(cls, work: Path) -> Self | None:
        """What `write` wrote; None where the intake is not complete."""
        path = work / INTAKE
        return cls(**json.loads(path.read_text(encoding="utf-8"))) if path.exists() else None

    def write(self, work: Path) -> None:
        """Say that everything is there."""
        write_whole(work / INTAKE, json.dumps(asdict(self)))
