"""Ray Data: a row is the number of a shard, a stage is a pool of actors, and files go by the shared directory, not by Ray.

So Ray's object store holds numbers, whatever the job's size, and a shard has the same bytes as in any other engine. Ray starts
actors again that die, and tries their shards again.
"""

import logging
import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports to its makers unless this is set before it starts
os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # what its C++ part calls an error is raised, too

import pyarrow as pa
import ray
import ray.data
from ray.exceptions import RayError

from bulk.engines.worker import Worker
from bulk.errors import BulkError, one_line
from bulk.stages import Job, Stage

OBJECT_STORE = 100 << 20  # bytes, of a cluster that is started here


class RayEngine:
    """Runs stages on a Ray cluster; to be used in a `with` block.

    Args:
        workers: actors of a stage; none: as many as the cluster has CPUs for.
        attempts: times that a shard is tried.
        address: of the cluster; none: one is started on this machine.
        gpus: of a scoring worker.
    """

    def __init__(self, workers: int | None, attempts: int, address: str | None = None, gpus: float = 0.0) -> None:
        self._workers, self._attempts, self._address, self._gpus = workers, attempts, address, gpus

    def __enter__(self) -> Self:
        own: dict[str, Any] = {"include_dashboard": False, "object_store_memory": OBJECT_STORE, "num_cpus": self._workers}
        try:
            ray.init(self._address, log_to_driver=False, logging_level=logging.ERROR, **({} if self._address else own))
        except (RayError, OSError, ValueError, RuntimeError) as error:
            raise BulkError(f"Ray: {one_line(error)}") from None
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of options of Ray's own that it sets
            context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        ray.shutdown()

    def run(self, stage: type[Stage], job: Job, shards: Sequence[int], note: Callable[[str], object]) -> Iterator[int]:
        """See `bulk.job.Engine`; what Ray mends it keeps to itself."""
        threads = job.asking.threads
        workers = min(self._workers or _cpus() // threads or 1, len(shards))
        done = ray.data.from_items([{"shard": shard} for shard in shards], override_num_blocks=len(shards)).map_batches(
            _Actor,
            fn_constructor_args=(stage, job, self._attempts),
            batch_size=1,
            batch_format="pyarrow",
            compute=ray.data.ActorPoolStrategy(size=workers),
            num_cpus=threads,
            num_gpus=self._gpus if stage.runs_model else 0,
            ray_remote_args_fn=partial(dict, max_restarts=self._attempts - 1, max_task_retries=self._attempts - 1),
        )
        try:
            for batch in done.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
                yield from _done(batch)
        except RayError as error:
            raise BulkError(f"Ray gave up after {self._attempts} attempts: {one_line(error)}") from None


def _cpus() -> int:
    """Of the cluster."""
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(resources["CPU"])


def _done(answers: pa.Table) -> Iterator[int]:
    """The shards that actors did. Raises BulkError for one that could not be done."""
    for row in answers.to_pylist():
        if row["problem"]:
            raise BulkError(row["problem"])
        yield row["shard"]


class _Actor:
    """A worker, as Ray Data calls it."""

    def __init__(self, stage: type[Stage], job: Job, attempts: int) -> None:
        self._worker = Worker(stage, job, attempts)

    def __call__(self, shards: pa.Table) -> pa.Table:
        numbers = shards["shard"].to_pylist()
        return pa.table({"shard": numbers, "problem": [self._worker.do(number) for number in numbers]})
