"""Runs shards in processes of this machine. A process that dies is replaced, and its shard is tried again."""

import multiprocessing
import os
import signal
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import cast

from bulk.engines.worker import Worker
from bulk.errors import BulkError
from bulk.stages import Job, Stage

_SPAWN = multiprocessing.get_context("spawn")  # a fork of a process with threads may hang


class LocalEngine:
    """Runs stages in processes.

    Args:
        workers: the largest number of processes.
        attempts: times that a shard is tried.
    """

    def __init__(self, workers: int, attempts: int) -> None:
        self._workers, self._attempts = workers, attempts

    def run(self, stage: type[Stage], job: Job, shards: Sequence[int], note: Callable[[str], object]) -> Iterator[int]:
        """See `bulk.job.Engine`."""
        todo, deaths = deque(shards), Counter[int]()
        processes = [_Process(stage, job, self._attempts) for _ in range(min(self._workers, len(shards)))]
        try:
            while todo or any(one.shard is not None for one in processes):
                for one in processes:
                    if one.shard is None and todo:
                        one.give(todo.popleft())
                for number in _answering(processes):
                    one = processes[number]
                    shard, problem = one.answer()
                    if problem is None:
                        deaths[shard] += 1
                        note(self._retry_note(deaths[shard], shard, one.cause_of_death()))
                        todo.appendleft(shard)
                        processes[number] = _Process(stage, job, self._attempts)
                    elif problem:
                        raise BulkError(problem)
                    else:
                        yield shard
        finally:
            for one in processes:
                one.end()

    def _retry_note(self, deaths: int, shard: int, cause: str) -> str:
        """A note about the retry. Raises BulkError if the shard's workers died too often."""
        if deaths >= self._attempts:
            what = f"shard {shard} was tried {deaths} times, and its worker died each time ({cause})"
            raise BulkError(f"{what}: if memory is short, take fewer --workers, or a smaller --shard-pairs with another --out")
        return f"a worker died ({cause}); shard {shard} is tried again"


class _Process:
    """A worker in a process of its own."""

    def __init__(self, stage: type[Stage], job: Job, attempts: int) -> None:
        self.shard: int | None = None
        self.connection, worker_end = _SPAWN.Pipe()
        self._process: BaseProcess = _SPAWN.Process(target=_work, args=(worker_end, stage, job, attempts), daemon=True)
        self._process.start()
        worker_end.close()  # only the process has a copy now, so its death closes the pipe

    def give(self, shard: int) -> None:
        """Send a shard to the process. `answer` reports a process that has died."""
        self.shard = shard
        try:
            self.connection.send(shard)
        except BrokenPipeError:
            pass

    def answer(self) -> tuple[int, str | None]:
        """The shard and its problem: "" if it is done, None if the process has died."""
        shard, self.shard = cast(int, self.shard), None
        try:
            return shard, str(self.connection.recv())
        except (EOFError, ConnectionResetError):
            return shard, None

    def cause_of_death(self) -> str:
        """How the dead process ended: by a signal or with an exit code."""
        self._process.join()
        code = self._process.exitcode or 0
        return f"by signal {-code}, {signal.strsignal(-code)}" if code < 0 else f"with exit code {code}"

    def end(self) -> None:
        """Kill the process. An unfinished shard is lost."""
        self._process.kill()
        self._process.join()
        self.connection.close()


def _answering(processes: Sequence[_Process]) -> list[int]:
    """Wait; the numbers of the busy processes that have answered or died."""
    busy = {one.connection: number for number, one in enumerate(processes) if one.shard is not None}
    return [busy[cast(Connection, connection)] for connection in wait(list(busy))]


def _work(connection: Connection, stage: type[Stage], job: Job, attempts: int) -> None:
    """Do shards until the driver closes the pipe or dies."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the driver handles Ctrl-C
    threading.Thread(target=_end_with_driver, daemon=True).start()
    worker = Worker(stage, job, attempts)
    while True:
        try:
            connection.send(worker.do(connection.recv()))
        except (EOFError, BrokenPipeError):
            return


def _end_with_driver() -> None:
    if (driver := multiprocessing.parent_process()) is not None:
        wait([driver.sentinel])
        os._exit(1)
