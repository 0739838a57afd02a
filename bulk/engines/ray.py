"""Runs shards with Ray: each is a task, and a process of Ray's loads a stage once.

Files go through the shared directory, not through Ray. So Ray's object store holds only numbers, whatever the job's size, and a
shard has the same bytes as with any other engine.
"""

import os
from collections import deque
from collections.abc import Iterator
from functools import lru_cache
from logging import ERROR
from types import TracebackType
from typing import Any, Self

os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # Ray reports usage to its makers unless this is set before the start
os.environ.setdefault("RAY_BACKEND_LOG_LEVEL", "fatal")  # errors of its C++ part are raised, too

import ray
from ray.exceptions import LocalRayletDiedError, NodeDiedError, OutOfMemoryError, RayError, WorkerCrashedError

from bulk.errors import BulkError, one_line
from bulk.stages import Job, Stage, Worker

OBJECT_STORE = 100 << 20  # bytes, in a cluster that this engine starts


class RayEngine:
    """Runs stages on a Ray cluster. Use it in a `with` block.

    Args:
        workers: shards at once; None: as many as the cluster's CPUs allow.
        attempts: times that the start of a cluster is tried.
        address: the cluster's address; None: a cluster is started on this machine.
        threads: CPUs of each.
        gpus: GPUs of each that is scored.
    """

    def __init__(self, workers: int | None, attempts: int, address: str | None = None, threads: int = 1, gpus: float = 0.0) -> None:
        self._workers, self._attempts, self._address, self._threads, self._gpus = workers, attempts, address, threads, gpus

    def __enter__(self) -> Self:
        """Connect to the cluster, or start one. Raises BulkError.

        A failed start is tried again: on a busy machine the 30 s that Ray allows may be too short.
        """
        cpus = None if self._workers is None else self._workers * self._threads
        own: dict[str, Any] = {"include_dashboard": False, "object_store_memory": OBJECT_STORE, "num_cpus": cpus}
        for attempts_left in reversed(range(1 if self._address else self._attempts)):
            try:
                ray.init(self._address or "local", log_to_driver=False, logging_level=ERROR, **({} if self._address else own))
                break
            except Exception as error:  # Ray also raises bare exceptions
                ray.shutdown()
                if not attempts_left:
                    raise BulkError(f"Ray: {one_line(error)}") from None
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        ray.shutdown()

    def try_once(self, stage: type[Stage], job: Job, shards: list[int]) -> Iterator[int]:
        """See `bulk.job.Engine`."""
        workers = self._workers or _cpus() // self._threads or 1
        gpus = self._gpus if stage.runs_model else 0
        task = ray.remote(num_cpus=self._threads, num_gpus=gpus, max_retries=0, max_calls=0)(_do)
        about, waiting, running = ray.put((stage, job)), deque(shards), dict[Any, int]()
        while waiting or running:
            while waiting and len(running) < workers:
                shard = waiting.popleft()
                running[task.remote(about, shard)] = shard
            (done,), _ = ray.wait(list(running))
            shard = running.pop(done)
            try:
                problem = ray.get(done)
            except (WorkerCrashedError, NodeDiedError, LocalRayletDiedError, OutOfMemoryError):
                continue
            except RayError as error:
                raise BulkError(f"Ray gave up: {one_line(error)}") from None
            if problem:
                raise BulkError(problem)
            yield shard


@lru_cache(maxsize=1)
def _worker(stage: type[Stage], job: Job) -> Worker:
    """The worker of this process, which does many shards."""
    return Worker(stage, job)


def _do(about: tuple[type[Stage], Job], shard: int) -> str:
    """Do a shard in a process of Ray's. Returns "" if it is done, else the problem."""
    return _worker(*about).do(shard)


def _cpus() -> int:
    """CPUs of the cluster; Ray names none where only a head without CPUs is up so far."""
    resources: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return int(resources.get("CPU", 0))
