"""Runs shards with Ray Data: a row is the number of a shard, and a stage is a pool of actors.

Files go through the shared directory, not through Ray. So Ray's object store holds only numbers, whatever the job's size, and a
shard has the same bytes as with any other engine. Ray restarts actors that die; their shards are tried again in another pass.
"""

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from types import TracebackType
from typing import Any, Self

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports usage to its makers unless this is set before the start
os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # errors of its C++ part are raised, too

import pyarrow as pa
import ray
import ray.data
from ray.exceptions import RayError
from ray.util.annotations import RayDeprecationWarning

from bulk.engines.worker import Worker
from bulk.errors import BulkError, one_line
from bulk.stages import Job, Stage

OBJECT_STORE = 100 << 20  # bytes, in a cluster that this engine starts


class RayEngine:
    """Runs stages on a Ray cluster. Use it in a `with` block.

    Args:
        workers: actors of a stage; None: as many as the cluster's CPUs allow.
        attempts: times that a shard is tried.
        address: the cluster's address; None: a cluster is started on this machine.
        threads: CPUs of each worker.
        gpus: GPUs of each scoring worker.
    """

    def __init__(self, workers: int | None, attempts: int, address: str | None = None, threads: int = 1, gpus: float = 0.0) -> None:
        self._workers, self._attempts, self._address, self._threads, self._gpus = workers, attempts, address, threads, gpus

    def __enter__(self) -> Self:
        self._connect()
        logging.getLogger("ray.data").setLevel(logging.CRITICAL)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Ray warns about options that it sets itself
            context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.max_errored_blocks = -1  # a shard whose worker died is a block with an error: the other shards go on
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        ray.shutdown()

    def _connect(self) -> None:
        """Connect to the cluster, or start one. Raises BulkError.

        A failed start is tried again: on a busy machine the 30 s that Ray allows may be too short.
        """
        cpus = None if self._workers is None else self._workers * self._threads
        local_options: dict[str, Any] = {"include_dashboard": False, "object_store_memory": OBJECT_STORE, "num_cpus": cpus}
        for attempts_left in reversed(range(1 if self._address else self._attempts)):
            try:
                ray.init(
                    self._address or "local",
                    log_to_driver=False,
                    logging_level=logging.ERROR,
                    **({} if self._address else local_options),
                )
                return
            except Exception as error:  # Ray also raises bare exceptions
                ray.shutdown()
                if not attempts_left:
                    raise BulkError(f"Ray: {one_line(error)}") from None

    def run(self, stage: type[Stage], job: Job, shards: Sequence[int], note: Callable[[str], object]) -> Iterator[int]:
        """See `bulk.job.Engine`. The shards of a dead worker or node are tried again when the other shards are done."""
        missing, barren = dict.fromkeys(shards), 0
        while missing:
            before = len(missing)
            for shard in self._pass(stage, job, list(missing)):
                del missing[shard]
                yield shard
            barren = barren + 1 if len(missing) == before else 0
            if barren == self._attempts:
                raise BulkError(
                    f"shard {next(iter(missing))} was tried {barren} times, and its worker on Ray died each time: is memory short?"
                )
            if missing:
                note(f"workers on Ray died; shards that are tried again: {len(missing)}")

    def _pass(self, stage: type[Stage], job: Job, shards: Sequence[int]) -> Iterator[int]:
        """Try every shard once; yields the shards that are done."""
        workers = min(self._workers or _cpus() // self._threads or 1, len(shards))
        pool = ray.data.ActorPoolStrategy(size=workers, max_tasks_in_flight_per_actor=1)  # a dying worker loses one shard
        numbers = ray.data.from_items([{"shard": shard} for shard in shards], override_num_blocks=len(shards))
        with warnings.catch_warnings():
            warnings.simplefilter(
                "ignore", RayDeprecationWarning
            )  # about max_...: until 2.64 there is no other way to limit attempts
            done = numbers.map_batches(
                _Actor,
                fn_constructor_args=(stage, job, self._attempts),
                batch_size=1,
                batch_format="pyarrow",
                compute=pool,
                num_cpus=self._threads,
                num_gpus=self._gpus if stage.runs_model else 0,
                max_restarts=-1,
                max_task_retries=0,
            )
        try:
            for batch in done.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
                yield from _done(batch)
        except RayError as error:
            raise BulkError(f"Ray gave up: {one_line(error)}") from None


def _cpus() -> int:
    """CPUs of the cluster."""
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(resources["CPU"])


def _done(answers: pa.Table) -> Iterator[int]:
    """The shards that actors did. Raises BulkError for a shard that failed."""
    for row in answers.to_pylist():
        if row["problem"]:
            raise BulkError(row["problem"])
        yield row["shard"]


class _Actor:
    """A worker for Ray Data. It loads at the first shard: Ray would restart an actor that dies in its constructor for ever."""

    def __init__(self, stage: type[Stage], job: Job, attempts: int) -> None:
        self._worker_arguments = stage, job, attempts
        self._worker: Worker | None = None

    def __call__(self, shards: pa.Table) -> pa.Table:
        self._worker = self._worker or Worker(*self._worker_arguments)
        numbers = shards["shard"].to_pylist()
        return pa.table({"shard": numbers, "problem": [self._worker.do(number) for number in numbers]})
