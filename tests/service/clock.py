"""A clock that leaps: a deadline is over once what a test waits for has happened, however fast or slow the machine is."""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from typing import Any

from service.machine import AsyncioMachine, Awaited

FAR = 60.0  # seconds: a deadline that no test reaches by being slow
PAUSE = 0.001


class Leaping(AsyncioMachine):
    """Deadlines of up to FAR seconds lie ahead until the clock leaps, which any thread may say; then they are over."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def leap(self) -> None:
        """What is due within FAR seconds is due now."""
        self._ahead += FAR

    def now(self) -> float:
        """See Machine."""
        return super().now() + self._ahead

    @asynccontextmanager
    async def timeout(self, until: float | None) -> AsyncIterator[None]:
        """See Machine."""
        async with asyncio.timeout(None if until is None else until - self.now()) as bound:
            watching = None if until is None else asyncio.create_task(self._watch(bound, until))
            try:
                yield
            finally:
                if watching is not None:
                    watching.cancel()

    async def _watch(self, bound: asyncio.Timeout, until: float) -> None:
        while self.now() < until:
            await asyncio.sleep(PAUSE)
        bound.reschedule(0.0)

    def awaited(self, future: "Future[Any]") -> Awaited:
        """See Machine."""
        return _Awaited(self, super().awaited(future))


class _Awaited:
    """See Awaited."""

    def __init__(self, machine: Leaping, awaited: Awaited) -> None:
        self._machine, self._awaited = machine, awaited

    async def wait_until(self, until: float | None) -> bool:
        """See Awaited."""
        if until is None:
            return await self._awaited.wait_until(None)
        while not (done := await self._awaited.wait_until(min(until, self._machine.now() + PAUSE))) and self._machine.now() < until:
            pass
        return done
