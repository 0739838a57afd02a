"""Runs a job: checks the manifest, takes in the input, runs the stages on an engine, and marks the output as complete."""

import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import NamedTuple, Protocol

from bulk.engines.local import LocalEngine
from bulk.errors import BulkError
from bulk.intake import take_in
from bulk.manifest import NAME, agree, complete, describe, fingerprint
from bulk.options import Options
from bulk.stages import Job, Prepare, Score, Stage, understanding_of
from bulk.work import Intake, Layout, sweep
from keyblock.bundle import load_bundle
from keyblock.fusion import FirstStage
from keyblock.lock import locked
from keyblock.runtime.cpus import default_threads

SECONDS = 60  # at most, from one line of progress to the next


class Engine(Protocol):
    """Runs the shards of a stage."""

    def try_once(self, stage: type[Stage], job: Job, shards: list[int]) -> Iterator[int]:
        """Try each shard and yield it when it is done; not if its worker died. Raises BulkError for a shard that fails."""


class Summary(NamedTuple):
    """Counts of a finished job.

    Attributes:
        lists: queries.
        pairs: pairs of query and document.
        documents: distinct documents.
        shards: files of rankings.
        new: files of rankings that this process wrote.
    """

    lists: int
    pairs: int
    documents: int
    shards: int
    new: int


class Progress:
    """The progress of a stage on stderr: a line for each tenth of the work, and for each minute.

    Args:
        name: the stage's name.
        unit: the counted unit.
        total: units of the stage; 0 if the number is not known.
        done: units that earlier processes did.
    """

    def __init__(self, name: str, unit: str, total: int = 0, done: int = 0) -> None:
        self._name, self._unit, self._total, self._done, self._new = name, unit, total, done, 0
        self._began = self._said = time.perf_counter()

    def add(self, count: int) -> None:
        """Count finished units."""
        tenths = self._tenths()
        self._done, self._new = self._done + count, self._new + count
        now = time.perf_counter()
        if self._tenths() > tenths or now - self._said >= SECONDS:
            self._said, rate = now, self._new / max(now - self._began, 1e-9)
            of = f" of {self._total:,}" if self._total else ""
            left = f", {(self._total - self._done) / rate:,.0f} s left" if self._total and rate else ""
            self.note(f"{self._name}: {self._done:,}{of} {self._unit}, {rate:,.1f}/s{left}")

    def note(self, message: str) -> None:
        """Print a line."""
        print(message, file=sys.stderr, flush=True)

    def _tenths(self) -> int:
        return 10 * self._done // self._total if self._total else 0


def rank_all(options: Options) -> Summary:
    """Do the rest of the job. Raises BulkError, BundleError, FirstStageError, and OSError if a file cannot be written."""
    bundle, layout = load_bundle(options.bundle), Layout(options.out)
    FirstStage.read((), options.fusion, 0)  # errors now, and not in each worker
    if options.understand:
        understanding_of(bundle.pipeline)
    lock_error = BulkError(f"{options.out}: another job writes to it; wait for it, or choose another --out")
    with locked(options.out, lock_error):
        about = describe(options, bundle)
        whole = agree(options.out, about)
        if whole is not None and all(layout.rankings(shard).exists() for shard in range(whole["shards"])):
            if not options.keep_work:  # a process that was stopped at its end may have left it
                shutil.rmtree(layout.work, ignore_errors=True)
            return Summary(**whole, new=0)
        layout.work.mkdir(exist_ok=True)
        sweep(options.out, layout.work)
        try:
            intake = Intake.read(layout.work) or take_in(options, layout, Progress("take in", "pairs").add)
        except BulkError:
            if not any(options.out.glob("rankings-*")):  # nothing is computed: the corrected input may take the directory
                (options.out / NAME).unlink()
            raise
        job = Job(layout, options.bundle, options.asking, intake, fingerprint(about), options.attempts)
        remaining = _remaining(Score, job)
        if remaining:
            with _engine(options) as engine:
                _run(engine, Prepare, job, _remaining(Prepare, job))
                _run(engine, Score, job, remaining)
        counts = {"lists": intake.n_lists, "pairs": sum(intake.pairs), "documents": sum(intake.documents)}
        complete(options.out, about, counts := {**counts, "shards": len(intake.pairs)})
        if not options.keep_work:
            shutil.rmtree(layout.work)
        return Summary(**counts, new=len(remaining))


def _remaining(stage: type[Stage], job: Job) -> list[int]:
    return [shard for shard in range(len(_sizes(stage, job))) if not stage.whole(job, shard)]


def _sizes(stage: type[Stage], job: Job) -> list[int]:
    """The size of each shard."""
    return list(getattr(job.intake, stage.unit))


def _run(engine: Engine, stage: type[Stage], job: Job, shards: list[int]) -> None:
    sizes = _sizes(stage, job)
    progress = Progress(stage.name, stage.unit, sum(sizes), sum(sizes) - sum(sizes[shard] for shard in shards))
    for shard in rounds(partial(engine.try_once, stage, job), shards, job.attempts, progress.note):
        progress.add(sizes[shard])


def rounds(
    go: Callable[[list[int]], Iterator[int]], shards: Sequence[int], attempts: int, note: Callable[[str], object]
) -> Iterator[int]:
    """Yield each shard when it is done; those whose worker died are tried again when the others are done.

    Args:
        go: tries every one of these shards once, and yields those that are done.
        shards: what is to be done.
        attempts: rounds in which none is done before the job ends.
        note: called with a line for each further round.

    Raises BulkError when `attempts` rounds, one after the other, have done nothing.
    """
    missing, barren = dict.fromkeys(shards), 0
    while missing:
        before = len(missing)
        for shard in go(list(missing)):
            del missing[shard]
            yield shard
        barren = barren + 1 if len(missing) == before else 0
        if barren == attempts:
            what = f"shard {next(iter(missing))} was tried {barren} times, and a worker died each time"
            advice = "take fewer --workers, or a smaller --shard-pairs with another --out"
            raise BulkError(f"{what}: if memory is short, {advice}")
        if missing:
            note(f"workers died; shards that are tried again: {len(missing)}")


def _engine(options: Options) -> AbstractContextManager[Engine]:
    """The engine that the options name. Raises BulkError if it is not installed."""
    if options.engine == "local":
        workers = options.workers or max(1, default_threads() // options.threads)
        return nullcontext(LocalEngine(workers))
    try:
        from bulk.engines.ray import RayEngine
    except ImportError as error:
        raise BulkError(f"--engine ray: Ray is not here: pip install 'keyblock[ray]' ({error})") from None
    return RayEngine(options.workers, options.attempts, options.address, options.threads, options.gpus)
