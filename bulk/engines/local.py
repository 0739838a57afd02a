"""Processes of this machine. One that dies is replaced, and its shard is tried again."""

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
        workers: at most.
        attempts: times that a shard is tried.
    """

    def __init__(self, workers: int, attempts: int) -> None:
        self._workers, self._attempts = workers, attempts

    def run(self, stage: type[Stage], job: Job, shards: Sequence[int], note: Callable[[str], object]) -> Iterator[int]:
        """See `bulk.job.Engine`."""
        todo, died = deque(shards), Counter[int]()
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
                        died[shard] += 1
                        note(self._after_death(died[shard], shard, one.how_it_ended()))
                        todo.appendleft(shard)
                        processes[number] = _Process(stage, job, self._attempts)
                    elif problem:
                        raise BulkError(problem)
                    else:
                        yield shard
        finally:
            for one in processes:
                one.end()

    def _after_death(self, died: int, shard: int, how: str) -> str:
        """What to say. Raises BulkError where a shard's workers died too often."""
        if died >= self._attempts:
            what = f"shard {shard} was tried {died} times, and its worker died each time ({how})"
            raise BulkError(f"{what}: if memory is short, take fewer --workers, or a smaller --shard-pairs with another --out")
        return f"a worker died ({how}); shard {shard} is tried again"


class _Process:
    """A worker in a process of its own."""

    def __init__(self, stage: type[Stage], job: Job, attempts: int) -> None:
        self.shard: int | None = None
        self.connection, theirs = _SPAWN.Pipe()
        self._process: BaseProcess = _SPAWN.Process(target=_work, args=(theirs, stage, job, attempts), daemon=True)
        self._process.start()
        theirs.close()  # with the process the last copy goes, and its end is seen here

    def give(self, shard: int) -> None:
        """Have a shard done. A process that has died says so in `answer`."""
        self.shard = shard
        try:
            self.connection.send(shard)
        except BrokenPipeError:
            pass

    def answer(self) -> tuple[int, str | None]:
        """The shard, and what went wrong with it: "" for nothing, None where the process has died."""
        shard, self.shard = cast(int, self.shard), None
        try:
            return shard, str(self.connection.recv())
        except (EOFError, ConnectionResetError):
            return shard, None

    def how_it_ended(self) -> str:
        """Of a process that has died."""
        self._process.join()
        code = self._process.exitcode or 0
        return f"by signal {-code}, {signal.strsignal(-code)}" if code < 0 else f"with exit code {code}"

    def end(self) -> None:
        """A shard that is not done is given up: none of it is kept."""
        self._process.kill()
        self._process.join()
        self.connection.close()


def _answering(processes: Sequence[_Process]) -> list[int]:
    """Waits; the numbers of those busy processes that have answered, or died."""
    busy = {one.connection: number for number, one in enumerate(processes) if one.shard is not None}
    return [busy[cast(Connection, connection)] for connection in wait(list(busy))]


def _work(connection: Connection, stage: type[Stage], job: Job, attempts: int) -> None:
    """What a process does until the driver has no more for it, or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's
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
