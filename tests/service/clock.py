"""A clock that leaps: a deadline is over once what a test waits for has happened, however fast or slow the machine is."""

import asyncio
import time
from contextlib import suppress
from weakref import WeakSet

import pytest

FAR = 60.0  # seconds: a deadline that no test reaches by being slow


class Leaping:
    """Deadlines of up to FAR seconds lie ahead until the clock leaps, which any thread may say; then they are over.

    It is Python's clock, and that of its event loops, until the patch is undone.
    """

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._ahead = 0.0
        self._loops = WeakSet[asyncio.BaseEventLoop]()
        now, of_loop = time.perf_counter, asyncio.BaseEventLoop.time

        def loop_time(loop: asyncio.BaseEventLoop) -> float:
            self._loops.add(loop)
            return of_loop(loop) + self._ahead

        patch.setattr(time, "perf_counter", lambda: now() + self._ahead)
        patch.setattr(asyncio.BaseEventLoop, "time", loop_time)

    def leap(self) -> None:
        """What is due within FAR seconds is due now."""
        self._ahead += FAR
        for loop in list(self._loops):
            with suppress(RuntimeError):  # it is closed
                loop.call_soon_threadsafe(bool)  # it may sleep until the deadline as it was
