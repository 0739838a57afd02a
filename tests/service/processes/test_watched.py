"""When a process that has ended is started again; real ones are in test_supervisor."""

import asyncio
import errno
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast
from unittest.mock import AsyncMock, Mock

import pytest

from service.processes.child import Order
from service.processes.watched import LONGEST_PAUSE, STEADY_SECONDS, Watched
from service.remote.replicas import GoneError
from service.settings import Settings
from service.start import BAD_START, NOT_STARTED

ORDER = Order(Settings(processes=2), Path("/nowhere/model"), [], [])


class Scripted(Watched):
    """Processes that live for these seconds and end with these codes; the last one is ended by the supervisor.

    Args:
        lives: seconds and code of each.
        starts: whether the first one gets as far as to say that it has started.
    """

    def __init__(self, lives: list[tuple[float, int]], *, starts: bool = True) -> None:
        super().__init__("front process 1", "a:b", ORDER, {})
        self.now, self.pauses = 0.0, list[float]()
        self._lives: Iterator[tuple[float, int]] = iter(lives)
        self._left, self._starts = len(lives), starts

    async def _run(self) -> int:
        if self._starts:
            await self._has_started()
        seconds, code = next(self._lives)
        self.now += seconds
        self._left -= 1
        if not self._left:
            self.end()
        return code

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)

    def kept(self, monkeypatch: pytest.MonkeyPatch) -> int:
        monkeypatch.setattr("service.processes.watched.asyncio", SimpleNamespace(sleep=self.sleep))
        monkeypatch.setattr("service.processes.watched.time", SimpleNamespace(monotonic=lambda: self.now))
        return asyncio.run(self.keep_running())


def test_a_process_is_restarted_at_once_and_then_after_growing_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Scripted([(1.0, -9)] * 7 + [(1.0, 0)])
    assert process.kept(monkeypatch) == 0
    assert process.pauses == [0, 1, 3, 7, 15, LONGEST_PAUSE, LONGEST_PAUSE]


def test_a_process_that_ran_for_a_while_is_restarted_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Scripted([(1.0, -9), (1.0, -9), (STEADY_SECONDS + 1, -9), (1.0, -9), (1.0, 0)])
    assert process.kept(monkeypatch) == 0
    assert process.pauses == [0, 1, 0, 1]


@pytest.mark.parametrize(
    ("starts", "code", "exits", "pauses"),
    [
        (False, BAD_START, BAD_START, []),
        (False, 1, 1, [0, 1]),
        (False, -signal.SIGABRT, NOT_STARTED, [0, 1]),
        (True, BAD_START, 0, [0, 1, 3]),
    ],
)
def test_a_process_that_never_starts_is_given_up(
    monkeypatch: pytest.MonkeyPatch, starts: bool, code: int, exits: int, pauses: list[float]
) -> None:
    """One that could before is tried again until it is ended; what crashes without a word gets three tries."""
    process = Scripted([(1.0, code)] * 4, starts=starts)
    assert process.kept(monkeypatch) == exits
    assert process.pauses == pauses


def test_the_reason_for_a_restart_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    process = Scripted([(1.0, NOT_STARTED), (1.0, -signal.SIGKILL), (1.0, 0)])
    process._on_end = told.append
    assert process.kept(monkeypatch) == 0
    assert told == ["ended", "killed"], "and not that it was ended with the service"


def test_a_process_ended_during_a_pause_is_not_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Scripted([(1.0, -9)] * 9)
    monkeypatch.setattr(process, "sleep", AsyncMock(side_effect=lambda _: process.end()))
    assert process.kept(monkeypatch) == 0
    assert process._left == 8


def test_closed_sockets_give_a_problem_and_no_stack_trace() -> None:
    process = Watched("front process 1", "a:b", ORDER._replace(listening=[10**6]), {})
    assert asyncio.run(process.keep_running()) == NOT_STARTED
    assert "front process 1 cannot be started (" in process.problem


def test_a_start_without_a_free_file_descriptor_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error must not end the supervisor, and with it all other processes."""
    process = Watched("front process 1", "a:b", ORDER, {})
    process._started = True
    none_left = Mock(side_effect=OSError(errno.ENFILE, os.strerror(errno.ENFILE)))
    monkeypatch.setattr("service.processes.watched.socket", SimpleNamespace(socketpair=none_left))
    process._on_end = lambda _: process.end()
    assert asyncio.run(process.keep_running()) == 0
    assert process.problem == f"front process 1 cannot be started ({os.strerror(errno.ENFILE)})"


def test_what_lies_in_the_working_directory_is_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numpy.py").write_text("raise SystemExit(9)", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    process = Watched("front process 1", "tests.service.processes.works:hears_nothing", ORDER, {})
    assert asyncio.run(process._run()) == 0
    assert process._started
    assert not process.in_doubt


@pytest.mark.parametrize("work", ["never_starts", "never_loads"])
def test_a_process_that_loads_too_long_is_killed(
    work: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Though it answers, and whether it has started or not; the time counts from when it can be stuck on the slowest machine."""
    monkeypatch.setattr("service.processes.watched.PING_SECONDS", 0.02)
    order = ORDER._replace(settings=Settings(load_seconds=1))
    process = Watched("front process 1", f"tests.service.processes.works:{work}", order, {})
    process._waits_for = cast(Watched, Beside(process))
    assert asyncio.run(process._run()) == -signal.SIGKILL
    assert process._started is (work == "never_loads")
    assert process._killed == "stuck"
    assert process.in_doubt
    assert "front process 1 has been loading for 1 s, and is killed" in caplog.text


class Beside:
    """What the front waits for, which is loading itself until the front has begun with what it is never done with."""

    def __init__(self, front: Watched) -> None:
        self._front = front

    @property
    def loading(self) -> bool:
        return self._front._work.endswith("never_loads") and not self._front._loading


def test_a_loading_process_may_be_silent_and_a_waiting_one_may_load_as_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten unanswered questions, where two are too many; of ten answered ones, where loading may take two."""
    monkeypatch.setattr("service.processes.watched.PING_SECONDS", 0.01)
    settings = Settings(load_seconds=0).model_copy(update={"hung_seconds": 0.02})
    model = Watched("the model's process", "a:b", ORDER._replace(settings=settings), {})
    quick = ORDER._replace(settings=settings.model_copy(update={"load_seconds": 0.02}))
    front = Watched("front process 1", "a:b", quick, {}, waits_for=model)
    asked = {model: 0, front: 0}

    async def run() -> None:
        for process, silent in ((model, True), (front, False)):
            await process._has_started()
            await process._is_loading(True)
            process._process = Mock(returncode=None)

            async def ask(_: str, process: Watched = process, silent: bool = silent) -> None:
                asked[process] += 1
                if silent:
                    await asyncio.Event().wait()

            monkeypatch.setattr(process, "ask", ask)
        watching = [asyncio.create_task(process._watch()) for process in asked]
        while min(asked.values()) < 10:
            await asyncio.sleep(0)
        assert (model._killed, front._killed) == ("", "")
        await model._is_loading(False)
        await asyncio.gather(*watching)

    asyncio.run(run())
    assert (model._killed, front._killed) == ("silent", "stuck")


def test_a_silent_process_is_killed(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """It answers three times, then misses one question, answers again, and then nothing more: two in turn are too many."""
    monkeypatch.setattr("service.processes.watched.PING_SECONDS", 0.02)
    process = Watched("front process 1", "a:b", ORDER, {})
    process._order = ORDER._replace(settings=Settings().model_copy(update={"hung_seconds": 0.04}))
    answers = iter([True, True, True, False, True])

    async def ask(method: str) -> None:
        assert method == "ping"
        if not next(answers, False):
            await asyncio.Event().wait()

    async def run() -> None:
        await process._has_started()
        sent = Mock()
        process._process = Mock(returncode=None, send_signal=sent)
        monkeypatch.setattr(process, "ask", ask)
        await process._watch()
        sent.assert_called_once_with(signal.SIGKILL)

    asyncio.run(run())
    assert "front process 1 has not answered for 0.04 s, and is killed" in caplog.text
    assert next(answers, None) is None, "all of them were asked for"


def test_a_process_that_is_not_running_gets_no_requests() -> None:
    async def run() -> None:
        process = Watched("front process 1", "a:b", ORDER, {})
        with pytest.raises(GoneError, match="front process 1 is not running"):
            await process.ask("reload")
        assert await process.families() == []
        await process.wait_for_end(0.0)
        process.end(signal.SIGKILL)

    asyncio.run(run())
