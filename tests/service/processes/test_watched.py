"""When a process that has ended is started again; real ones are in test_supervisor."""

import asyncio
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from service.processes.child import Order
from service.processes.watched import LONGEST_PAUSE, STEADY_SECONDS, Watched
from service.remote.replicas import GoneError
from service.settings import Settings
from service.start import BAD_START

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
        return asyncio.run(self.keep())


def test_it_is_started_again_at_once_and_then_ever_later(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Scripted([(1.0, -9)] * 7 + [(1.0, 0)])
    assert process.kept(monkeypatch) == 0
    assert process.pauses == [0, 1, 3, 7, 15, LONGEST_PAUSE, LONGEST_PAUSE]


def test_one_that_has_run_for_a_while_is_started_again_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    process = Scripted([(1.0, -9), (1.0, -9), (STEADY_SECONDS + 1, -9), (1.0, -9), (1.0, 0)])
    assert process.kept(monkeypatch) == 0
    assert process.pauses == [0, 1, 0, 1]


@pytest.mark.parametrize(("starts", "pauses"), [(False, []), (True, [0, 1])])
def test_one_that_could_never_start_is_given_up(monkeypatch: pytest.MonkeyPatch, starts: bool, pauses: list[float]) -> None:
    """One that could before is tried again, with the line that says why it cannot now."""
    process = Scripted([(1.0, BAD_START)] * 3, starts=starts)
    assert process.kept(monkeypatch) == BAD_START
    assert process.pauses == pauses


def test_one_that_does_not_run_is_asked_nothing() -> None:
    async def run() -> None:
        process = Watched("front process 1", "a:b", ORDER, {})
        with pytest.raises(GoneError, match="front process 1 is not running"):
            await process.ask("reload")
        assert await process.families() == []
        await process.ended(0.0)
        process.end(signal.SIGKILL)

    asyncio.run(run())
