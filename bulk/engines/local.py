"""Runs shards in processes of this machine."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.connection import wait

from bulk.errors import BulkError
from bulk.stages import Job, Stage, Worker

SPAWN = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
worker: Worker  # of a process of the pool


class LocalEngine:
    """Runs stages in processes.

    Args:
        workers: the largest number of processes.
    """

    def __init__(self, workers: int) -> None:
        self._workers = workers

    def try_once(self, stage: type[Stage], job: Job, shards: list[int]) -> Iterator[int]:
        """See `bulk.job.Engine`. The death of one process ends the try of all."""
        others = multiprocessing.active_children()  # of a program that calls this
        pool = ProcessPoolExecutor(min(self._workers, len(shards)), SPAWN, _begin, (stage, job))
        try:
            running = {pool.submit(_do, shard): shard for shard in shards}
            for done in as_completed(running):
                if problem := done.result():
                    raise BulkError(problem)
                yield running[done]
        except BrokenProcessPool:
            return
        finally:
            for process in multiprocessing.active_children():
                if process not in others:  # it is idle, or does what nobody wants any more
                    process.kill()
            pool.shutdown(cancel_futures=True)


def _begin(stage: type[Stage], job: Job) -> None:
    """Make the worker of this process, which ends at Ctrl-C and with the driver."""
    global worker  # noqa: PLW0603
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_driver, daemon=True).start()
    worker = Worker(stage, job)


def _do(shard: int) -> str:
    """Do a shard in a process of the pool. Returns "" if it is done, else the problem."""
    return worker.do(shard)


def _end_with_driver() -> None:
    if (driver := multiprocessing.parent_process()) is not None:
        wait([driver.sentinel])
        os._exit(1)
