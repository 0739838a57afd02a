"""Measures the rate of each stage of a bulk job alone, in one thread. The plan of a larger job is computed from these rates."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.bulk.beside import BUNDLE, List, write_lists
from bulk.engines.local import LocalEngine
from bulk.engines.ray import RayEngine
from bulk.intake import take_in
from bulk.job import Engine
from bulk.options import Options
from bulk.scorer import BundleScorer
from bulk.sources import StoredSource
from bulk.stages import Job, Prepare, Stage, write_rankings
from bulk.tables import map_table
from bulk.work import Layout
from keyblock.bundle import load_bundle
from keyblock.packing import Packed
from keyblock.runtime.model import open_model
from keyblock.scoring import Model

ATTEMPTS, WORKERS = 3, 2
HANDED_OUT = 500  # shards that the engine hands out


class Timed:
    """A model that counts its CPU seconds.

    Attributes:
        seconds: CPU seconds so far.
    """

    def __init__(self, inner: Model) -> None:
        self.seconds = 0.0
        self._inner = inner

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        """See `keyblock.scoring.Model`."""
        return self._timed(lambda: self._inner.outputs(sequences))

    def choose(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        """See `keyblock.scoring.Model`."""
        return self._timed(lambda: self._inner.choose(sequences))

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """See `keyblock.scoring.Model`."""
        return self._timed(lambda: self._inner.combine(states, mask))

    def _timed(self, work: Callable[[], NDArray[np.float32]]) -> NDArray[np.float32]:
        before = time.process_time()
        try:
            return work()
        finally:
            self.seconds += time.process_time() - before


class Nothing(Stage):
    """A stage without work, so that only the engine takes time."""

    name, unit, runs_model = "nothing", "shards", False

    def __init__(self, job: Job) -> None:
        pass

    def __call__(self, shard: int) -> None:
        """See Stage."""

    @staticmethod
    def sizes(job: Job) -> list[int]:  # noqa: ARG004  # as every stage
        """See Stage."""
        return [1] * HANDED_OUT

    @staticmethod
    def whole(job: Job, shard: int) -> bool:  # noqa: ARG004
        """See Stage."""
        return False


def measure(lists: Sequence[List], data: Path, work: Path) -> dict[str, float]:
    """The rate of every stage, and sizes in bytes.

    Returns:
        `take_in_run`, `take_in_lists`, `score` and `choose` (score, but for the model): pairs a CPU second. `prepare`: documents a
        CPU second. `hand_out_local`, `hand_out_ray`: shards a second by the clock, of two workers that have nothing to do.
        `write`: pairs a second by the clock, as one worker writes and syncs rankings. `shard_pairs`: of such a file.
        `document_bytes` and `prepared_bytes` of a document, `ranking_bytes` of a pair, on disk.
    """
    run, _ = _taken_in(work / "run", run=data / "run.dev.bm25.trec.gz", collection=data)
    given, job = _taken_in(work / "lists", lists=(write_lists(lists, work / "lists.jsonl"),))
    n_documents = sum(job.intake.documents)
    prepare = Prepare(job)
    seconds = _spent(lambda: _run_all(prepare, job.intake.documents))
    return {
        "take_in_run": run,
        "take_in_lists": given,
        "prepare": n_documents / seconds,
        "document_bytes": _bytes(job.layout.work, "documents-*") / n_documents,
        "prepared_bytes": _bytes(job.layout.work, "prepared-*") / n_documents,
        **_scored(job),
        "hand_out_local": _handed_out(LocalEngine(WORKERS, ATTEMPTS), job),
        "hand_out_ray": _handed_out_by_ray(job),
    }


def _taken_in(out: Path, **given: Any) -> tuple[float, Job]:
    """Pairs per CPU second of the intake, and the job."""
    options, layout = Options(bundle=BUNDLE, out=out, **given), Layout(out)
    layout.work.mkdir(parents=True)
    seconds = time.process_time()
    intake = take_in(options, layout)
    seconds = time.process_time() - seconds
    return sum(intake.pairs) / seconds, Job(layout, BUNDLE, options.asking, intake, "")


def _spent(work: Callable[[], object]) -> float:
    """The CPU seconds of a call."""
    before = time.process_time()
    work()
    return time.process_time() - before


def _run_all(stage: Stage, shards: Sequence[int]) -> None:
    for shard in range(len(shards)):
        stage(shard)


def _bytes(folder: Path, pattern: str) -> int:
    return sum(path.stat().st_size for path in folder.glob(pattern))


def _scored(job: Job) -> dict[str, float]:
    """Rates of scoring the first shard, after a run to warm up."""
    bundle = load_bundle(BUNDLE)
    model = Timed(open_model(bundle, job.asking.provider, job.asking.threads, job.asking.precision))
    scorer = BundleScorer(bundle, model, job.asking, StoredSource(job.layout, job.intake.documents))
    batch, pairs, path = map_table(job.layout.lists(0)), job.intake.pairs[0], job.layout.rankings(0)
    ranked = scorer(batch)
    model.seconds = 0.0
    seconds = _spent(lambda: scorer(batch))
    began = time.perf_counter()
    write_rankings(path, ranked, job.fingerprint)
    writing = time.perf_counter() - began
    return {
        "score": pairs / seconds,
        "choose": pairs / (seconds - model.seconds),
        "write": pairs / writing,
        "shard_pairs": pairs,
        "ranking_bytes": path.stat().st_size / pairs,
    }


def _handed_out(engine: Engine, job: Job) -> float:
    """Shards a second, from the first finished one to the last."""
    times = [time.perf_counter() for _ in engine.run(Nothing, job, list(range(HANDED_OUT)), lambda _: None)]
    return (len(times) - 1) / (times[-1] - times[0])


def _handed_out_by_ray(job: Job) -> float:
    with RayEngine(WORKERS, ATTEMPTS) as engine:
        return _handed_out(engine, job)
