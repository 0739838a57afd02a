"""The clock, the threads and the waiting, which are handed in: a request's way through the service has none of its own.

The service hands in this machine's, on asyncio. A simulation hands in its own, whose clock is a number and whose threads are
events: the same code then meets in a minute what a service meets in a day, and a seed repeats all of it.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeVar

T = TypeVar("T")
Clock = Callable[[], float]
"""Seconds from any beginning; it never jumps."""


class Awaited(Protocol):
    """A future of another thread that a coroutine waits for."""

    async def by(self, until: float | None) -> bool:
        """Wait until then at most, for None as long as it takes; whether it is done."""


class Machine(Protocol):
    """What a coroutine of the service asks of whoever runs it."""

    def now(self) -> float:
        """Seconds from any beginning; it never jumps."""

    def wall(self) -> float:
        """Seconds since 1970, as this machine's clock is set; it may jump either way."""

    def pool(self, threads: int, name: str) -> Executor:
        """So many threads of this name."""

    async def run(self, pool: Executor | None, work: Callable[..., T], *arguments: Any) -> T:
        """What the work returns, done in the pool, for None in any thread. Cancelling the await drops it if it has not begun."""

    def timeout(self, until: float | None) -> AbstractAsyncContextManager[object]:
        """The body ends with TimeoutError where it waits at that time; None for no such time."""

    async def together(self, works: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Run all at once until each is done; where one fails the others are cancelled. Raises ExceptionGroup."""

    def awaited(self, future: "Future[Any]") -> Awaited:
        """A future, to be waited for."""


class AsyncioMachine:
    """Clocks and threads of the machine that this runs on, on the running event loop."""

    def now(self) -> float:
        """See Machine: `time.perf_counter`."""
        return time.perf_counter()

    def wall(self) -> float:
        """See Machine."""
        return time.time()

    def pool(self, threads: int, name: str) -> Executor:
        """See Machine."""
        return ThreadPoolExecutor(threads, name)

    async def run(self, pool: Executor | None, work: Callable[..., T], *arguments: Any) -> T:
        """See Machine."""
        return await asyncio.get_running_loop().run_in_executor(pool, work, *arguments)

    def timeout(self, until: float | None) -> AbstractAsyncContextManager[object]:
        """See Machine."""
        return asyncio.timeout(None if until is None else until - self.now())

    async def together(self, works: Iterable[Coroutine[Any, Any, None]]) -> None:
        """See Machine."""
        async with asyncio.TaskGroup() as group:
            for work in works:
                group.create_task(work)

    def awaited(self, future: "Future[Any]") -> Awaited:
        """See Machine."""
        return _Awaited(future)


class _Awaited:
    """See Awaited."""

    def __init__(self, future: "Future[Any]") -> None:
        self._future = asyncio.wrap_future(future)

    async def by(self, until: float | None) -> bool:
        """See Awaited."""
        await asyncio.wait([self._future], timeout=None if until is None else max(until - time.perf_counter(), 0.0))
        if self._future.done() and not self._future.cancelled():
            self._future.exception()  # asyncio warns of one that nobody asks for; it is asked for in the other thread's future
        return self._future.done()


ASYNCIO = AsyncioMachine()
