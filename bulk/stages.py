"""The two stages of a job, preparation, then scoring, and the worker that does their shards for any engine."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq

from bulk.errors import BulkError, one_line
from bulk.options import Asking
from bulk.scorer import BundleScorer, StoredDocuments
from bulk.tables import PREPARED, columns_of, map_table, write_table
from bulk.work import Intake, Layout, whole_file, write_once
from keyblock.bundle import load_bundle
from keyblock.meaning import Understanding
from keyblock.pipeline import Pipeline
from keyblock.runtime.model import GraphModel, open_model
from keyblock.scoring import Model

ARITHMETIC = "arithmetic.txt"
FINGERPRINT = b"keyblock.fingerprint"


@dataclass(frozen=True, slots=True)
class Job:
    """A worker's description of the job.

    Attributes:
        layout: where the files are.
        bundle: the bundle's directory.
        asking: the options that decide the answers.
        intake: how much was taken in.
        fingerprint: identifies everything that decides the answers; each shard of rankings holds it.
        attempts: times that a shard is tried.
    """

    layout: Layout
    bundle: Path
    asking: Asking
    intake: Intake
    fingerprint: str
    attempts: int

    def __hash__(self) -> int:
        return hash(self.fingerprint)


class Stage(ABC):
    """A kind of work on shards. A worker makes it once for a job, and it keeps what it loaded.

    Attributes:
        name: for the progress.
        unit: what its shards are counted in, a field of `Intake`.
        runs_model: whether a worker can use a GPU.
    """

    name: ClassVar[str]
    unit: ClassVar[str]
    runs_model: ClassVar[bool]

    @abstractmethod
    def __init__(self, job: Job) -> None:
        """Load what the stage needs. An error that a person can fix is one line."""

    @abstractmethod
    def __call__(self, shard: int) -> None:
        """Write a shard, whole or not at all."""

    @staticmethod
    @abstractmethod
    def whole(job: Job, shard: int) -> bool:
        """Whether a shard is written."""


def understanding_of(pipeline: Pipeline) -> Understanding:
    """What understands documents. Raises BulkError if the bundle has no sentence encoder for it."""
    if pipeline.understanding is None:
        raise BulkError("--understand needs a bundle with a sentence encoder for stored documents: see keyblock-encoder --meaning")
    return pipeline.understanding


class Prepare(Stage):
    """Prepares the distinct documents. It needs no model."""

    name, unit, runs_model = "prepare", "documents", False

    def __init__(self, job: Job) -> None:
        self._layout, self._pipeline = job.layout, load_bundle(job.bundle).pipeline
        self._understanding = understanding_of(self._pipeline) if job.asking.understand else None

    def __call__(self, shard: int) -> None:
        """See Stage."""
        batch = map_table(self._layout.documents(shard))
        texts, titles = batch.column("text").to_pylist(), batch.column("title").to_pylist()
        made = self._pipeline.prepare_documents(texts, titles)
        if self._understanding is not None:
            made = [self._understanding.read(one) for one in made]
        write_table(self._layout.prepared(shard), columns_of(made), PREPARED)

    @staticmethod
    def whole(job: Job, shard: int) -> bool:
        """See Stage."""
        return job.layout.prepared(shard).exists()


class Score(Stage):
    """Ranks lists whose documents are prepared."""

    name, unit, runs_model = "score", "pairs", True

    def __init__(self, job: Job) -> None:
        self._job = job
        bundle = load_bundle(job.bundle)
        model = open_model(bundle, job.asking.provider, job.asking.threads, job.asking.precision)
        _agree(job.layout.work / ARITHMETIC, model)
        self._score = BundleScorer(bundle, model, job.asking, StoredDocuments(job.layout, job.intake.documents))

    def __call__(self, shard: int) -> None:
        """See Stage."""
        ranked = self._score(map_table(self._job.layout.lists(shard)))
        schema = ranked.schema.with_metadata({FINGERPRINT: self._job.fingerprint})
        with whole_file(self._job.layout.rankings(shard)) as partial:
            pq.write_table(pa.Table.from_batches([ranked.cast(schema)]), partial, compression="zstd")

    @staticmethod
    def whole(job: Job, shard: int) -> bool:
        """See Stage. Raises BulkError if another job wrote the file, or it is damaged."""
        path = job.layout.rankings(shard)
        if not path.exists():
            return False
        try:
            found = (pq.read_schema(path).metadata or {}).get(FINGERPRINT, b"")
        except (pa.ArrowException, OSError):
            found = b""
        if found.decode() != job.fingerprint:
            raise BulkError(f"{path}: is damaged, or of another job: remove it, and the same command writes it again")
        return True


def _agree(path: Path, model: Model) -> None:
    """Raise BulkError if another worker of the job computes in another way: the scores would differ in the last digits, or more."""
    choice = model.session.choice if isinstance(model, GraphModel) else None
    own = "vectors" if choice is None else f"{choice.provider} in {choice.precision}"
    if (first := write_once(path, own)) != own:
        problem = f"this worker's model runs on {own}, and that of another on {first}"
        raise BulkError(f"{problem}: name --provider and --precision that all machines have, with another --out")


class Worker:
    """Does shards. It raises no errors: an engine would show the traceback, or retry for ever.

    Args:
        stage: the kind of work.
        job: the job that the shards belong to.
    """

    def __init__(self, stage: type[Stage], job: Job) -> None:
        self._job = job
        self._stage: Stage | None = None
        self._problem = ""
        try:
            self._stage = stage(job)
        except Exception as error:
            self._problem = one_line(error)

    def do(self, shard: int) -> str:
        """Do a shard. Returns "" if it is done, else the problem of the last attempt."""
        if self._stage is None:
            return self._problem
        problem = ""
        for _ in range(self._job.attempts):
            try:
                if not self._stage.whole(self._job, shard):  # an earlier worker may have written it and died before its answer
                    self._stage(shard)
            except Exception as error:
                problem = f"shard {shard} failed {self._job.attempts} times: {one_line(error)}"
            else:
                return ""
        return problem
