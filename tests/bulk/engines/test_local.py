"""Processes of this machine, and what a worker says; that one is killed in the middle of a job is in tests/bulk/test_cli.py."""

import multiprocessing
import os
import signal
import threading
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from bulk.engines.local import LocalEngine
from bulk.errors import BulkError
from bulk.job import rounds
from bulk.stages import Worker


@dataclass
class Task:
    """What these stages and a worker know of a job."""

    place: Path
    attempts: int = 3
    tried: list[int] = field(default_factory=list)


class Mortal:
    """Writes a file for each shard; where there is a file `life`, it dies once at shard 1.

    Where there is a file `tells`, it dies once when shard 1 is written, and had only to be told.
    """

    def __init__(self, job: Task) -> None:
        self._place = job.place

    def __call__(self, shard: int) -> None:
        life = self._place / "life"
        if shard == 1 and life.exists():
            life.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        (self._place / f"done-{shard}").write_text(str(os.getpid()))
        if shard == 1 and (self._place / "tells").exists():
            os.kill(os.getpid(), signal.SIGKILL)

    @staticmethod
    def whole(job: Task, shard: int) -> bool:
        return (job.place / f"done-{shard}").exists()


def run(place: Path) -> tuple[list[int], list[str]]:
    notes: list[str] = []
    once: Any = partial(LocalEngine(workers=1).try_once, Mortal, Task(place))  # type: ignore[arg-type]
    return sorted(rounds(once, [0, 1, 2], 3, notes.append)), notes


def test_a_worker_that_dies_is_replaced_and_its_shard_is_tried_again_while_other_processes_live_on(tmp_path: Path) -> None:
    other = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(60,))
    other.start()
    try:
        (tmp_path / "life").touch()
        done, notes = run(tmp_path)
        assert done == [0, 1, 2]
        assert notes == ["workers died; shards that are tried again: 2"]
        assert len({path.read_text() for path in tmp_path.glob("done-*")}) == 2
        assert other.is_alive()
    finally:
        other.kill()
        other.join()


def test_a_written_shard_is_not_done_again_if_its_worker_died_before_it_reported_it(tmp_path: Path) -> None:
    (tmp_path / "tells").touch()
    done, notes = run(tmp_path)
    assert (done, len(notes)) == ([0, 1, 2], 1)


class Failing(Mortal):
    """Fails at shard 0, and waits for ever at the others."""

    def __call__(self, shard: int) -> None:
        if shard == 0:
            raise OSError(28, "No space left on device")
        threading.Event().wait()


def test_a_problem_ends_the_job_at_once_whatever_else_is_in_hand() -> None:
    with pytest.raises(BulkError, match="shard 0 failed 2 times"):
        list(LocalEngine(2).try_once(Failing, Task(Path("none"), 2), list(range(9))))  # type: ignore[arg-type]
    assert multiprocessing.active_children() == []


class Flaky:
    """Fails the first time on shard 1, always on shard 2."""

    def __init__(self, job: Task) -> None:
        self.tried = job.tried

    def __call__(self, shard: int) -> None:
        self.tried.append(shard)
        if shard == 2 or (shard == 1 and self.tried.count(1) == 1):
            raise OSError(28, "No space left on device")

    @staticmethod
    def whole(_: Task, shard: int) -> bool:
        return shard == 3


class Broken:
    def __init__(self, job: Task) -> None:
        raise ValueError("there is no\nsuch bundle")


def test_a_shard_is_tried_again_and_then_reported_as_failed() -> None:
    task = Task(Path("none"))
    worker = Worker(Flaky, task)  # type: ignore[arg-type]
    assert [worker.do(shard) for shard in (0, 1)] == ["", ""]
    assert worker.do(2) == "shard 2 failed 3 times: [Errno 28] No space left on device"
    assert worker.do(3) == "", "it was written before"
    assert task.tried == [0, 1, 1, 2, 2, 2]


def test_a_stage_that_cannot_begin_reports_an_error_for_each_shard() -> None:
    worker = Worker(Broken, Task(Path("none")))  # type: ignore[arg-type]
    assert [worker.do(shard) for shard in (0, 1)] == ["there is no such bundle"] * 2
