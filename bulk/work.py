"""The files of a job: where they are, and how much they hold."""

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
