"""Runs shards in processes of this machine. Shards whose process dies are tried again, as with any engine: see `rounds`."""

import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing.connection import wait

from bulk.errors import BulkError
from bulk.stages import Job, Stage, Worker

SPAWN = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang
worker: Worker  # of a process of the pool


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


class LocalEngine:
    """Runs stages in processes.

    Args:
        workers: the largest number of processes.
        attempts: times that a shard is tried.
    """

    def __init__(self, workers: int, attempts: int) -> None:
        self._workers, self._attempts = workers, attempts

    def run(self, stage: type[Stage], job: Job, shards: Sequence[int], note: Callable[[str], object]) -> Iterator[int]:
        """See `bulk.job.Engine`. The death of one process ends all of a round."""
        return rounds(partial(self._round, stage, job), shards, self._attempts, note)

    def _round(self, stage: type[Stage], job: Job, shards: list[int]) -> Iterator[int]:
        others = multiprocessing.active_children()  # of a program that calls this
        pool = ProcessPoolExecutor(min(self._workers, len(shards)), SPAWN, _begin, (stage, job, self._attempts))
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


def _begin(stage: type[Stage], job: Job, attempts: int) -> None:
    """Make the worker of this process, which ends at Ctrl-C and with the driver."""
    global worker  # noqa: PLW0603
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_driver, daemon=True).start()
    worker = Worker(stage, job, attempts)


def _do(shard: int) -> str:
    """Do a shard in a process of the pool. Returns "" if it is done, else the problem."""
    return worker.do(shard)


def _end_with_driver() -> None:
    if (driver := multiprocessing.parent_process()) is not None:
        wait([driver.sentinel])
        os._exit(1)
