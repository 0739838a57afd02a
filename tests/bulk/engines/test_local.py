"""Processes of this machine, and what a worker says; that one is killed in the middle of a job is in tests/bulk/test_cli.py."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bulk.engines.local import LocalEngine, rounds
from bulk.errors import BulkError
from bulk.stages import Worker


class Mortal:
    """Writes a file for each shard; where there is a file `life`, it dies once at shard 1.

    Where there is a file `tells`, it dies once when shard 1 is written, and had only to be told.
    """

    def __init__(self, job: Any) -> None:
        self._place = Path(job)

    def __call__(self, shard: int) -> None:
        life = self._place / "life"
        if shard == 1 and life.exists():
            life.unlink()
            os.kill(os.getpid(), signal.SIGKILL)
        (self._place / f"done-{shard}").write_text(str(os.getpid()))
        if shard == 1 and (self._place / "tells").exists():
            os.kill(os.getpid(), signal.SIGKILL)

    @staticmethod
    def whole(job: Any, shard: int) -> bool:
        return (Path(job) / f"done-{shard}").exists()


def run(place: Path) -> tuple[list[int], list[str]]:
    notes: list[str] = []
    done = LocalEngine(workers=1, attempts=3).run(Mortal, str(place), [0, 1, 2], notes.append)  # type: ignore[arg-type]
    return sorted(done), notes


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


def test_rounds_go_on_while_any_shard_is_done() -> None:
    """Round by round what is done of what is missing, and in the end nothing."""
    done = iter([[0, 2], [], [3], [], []])
    asked, notes, found = list[list[int]](), list[str](), list[int]()

    def go(missing: list[int]) -> Iterator[int]:
        asked.append(missing)
        return iter(next(done))

    with pytest.raises(BulkError, match="shard 1 was tried 2 times, and a worker died each time: if memory is short, take fewer"):
        found.extend(rounds(go, range(4), 2, notes.append))
    assert found == [0, 2, 3]
    assert asked == [[0, 1, 2, 3], [1, 3], [1, 3], [1], [1]]
    assert notes == [f"workers died; shards that are tried again: {number}" for number in (2, 2, 1, 1)]


class Failing(Mortal):
    """Fails at shard 0, and waits for ever at the others."""

    def __call__(self, shard: int) -> None:
        if shard == 0:
            raise OSError(28, "No space left on device")
        threading.Event().wait()


def test_a_problem_ends_the_job_at_once_whatever_else_is_in_hand() -> None:
    with pytest.raises(BulkError, match="shard 0 failed 2 times"):
        list(LocalEngine(2, attempts=2).run(Failing, "none", range(9), print))  # type: ignore[arg-type]
    assert multiprocessing.active_children() == []


def test_nothing_to_do_starts_nothing() -> None:
    assert list(LocalEngine(2, 3).run(Mortal, "none", [], print)) == []  # type: ignore[arg-type]


class Flaky:
    """Fails the first time on shard 1, always on shard 2."""

    def __init__(self, job: Any) -> None:
        self.tried: list[int] = []
        job.append(self)

    def __call__(self, shard: int) -> None:
        self.tried.append(shard)
        if shard == 2 or (shard == 1 and self.tried.count(1) == 1):
            raise OSError(28, "No space left on device")

    @staticmethod
    def whole(_: Any, shard: int) -> bool:
        return shard == 3


class Broken:
    def __init__(self, job: Any) -> None:
        raise ValueError("there is no\nsuch bundle")


def test_a_shard_is_tried_again_and_then_reported_as_failed() -> None:
    made: list[Any] = []
    worker = Worker(Flaky, made, attempts=3)  # type: ignore[arg-type]
    assert [worker.do(shard) for shard in (0, 1)] == ["", ""]
    assert worker.do(2) == "shard 2 failed 3 times: [Errno 28] No space left on device"
    assert worker.do(3) == "", "it was written before"
    assert made[0].tried == [0, 1, 1, 2, 2, 2]


def test_a_stage_that_cannot_begin_reports_an_error_for_each_shard() -> None:
    worker = Worker(Broken, None, attempts=3)  # type: ignore[arg-type]
    assert [worker.do(shard) for shard in (0, 1)] == ["there is no such bundle"] * 2
