"""The clock, the threads and the waiting, which are handed in: a request's way through the service has none of its own.

The service hands in this machine's, on asyncio. A simulation hands in its own, whose clock is a number and whose threads are
events: the same code then meets in a minute what a service meets in a day, and a seed repeats all of it.
"""

import asyncio
import random
import threading
import time
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")
Clock = Callable[[], float]
"""Seconds from any beginning; it never jumps."""


class Awaited(Protocol):
    """A future of another thread that a coroutine waits for."""

    async def by(self, until: float | None) -> bool:
        """Wait until then at most, for None as long as it takes; whether it is done."""


class Thread(Protocol):
    """A thread of its own: what the service asks of a `threading.Thread`."""

    @property
    def ident(self) -> int | None:
        """None before it is started."""

    def start(self) -> None:
        """Begin its work."""

    def is_alive(self) -> bool:
        """Whether it is started, and its work is not over."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until it is over, so many seconds at most."""


class Condition(AbstractContextManager[Any], Protocol):
    """A lock that threads wait with: what the service asks of a `threading.Condition`."""

    def wait(self) -> Any:
        """Wait until another thread notifies; the lock is given up meanwhile."""

    def notify(self) -> None:
        """Let one that waits go on."""


class Machine(Protocol):
    """What the service asks of whoever runs it."""

    def now(self) -> float:
        """Seconds from any beginning; it never jumps."""

    def wall(self) -> float:
        """Seconds since 1970, as this machine's clock is set; it may jump either way."""

    def uniform(self, low: float, high: float) -> float:
        """Any number between these."""

    def pool(self, threads: int, name: str) -> Executor:
        """So many threads of this name."""

    def thread(self, work: Callable[[], None], name: str) -> Thread:
        """A thread for this work, which the process does not wait for when it ends."""

    def condition(self) -> Condition:
        """What threads wait with."""

    def transport(self) -> "httpx.AsyncBaseTransport | None":
        """What carries HTTP requests to elsewhere; None for httpx's own, on sockets."""

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

    def uniform(self, low: float, high: float) -> float:
        """See Machine."""
        return random.uniform(low, high)

    def pool(self, threads: int, name: str) -> Executor:
        """See Machine."""
        return ThreadPoolExecutor(threads, name)

    def thread(self, work: Callable[[], None], name: str) -> Thread:
        """See Machine."""
        return threading.Thread(target=work, name=name, daemon=True)

    def condition(self) -> Condition:
        """See Machine."""
        return threading.Condition()

    def transport(self) -> "httpx.AsyncBaseTransport | None":
        """See Machine."""
        return None

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
        return _Awaited(future, self.now)


class _Awaited:
    """See Awaited."""

    def __init__(self, future: "Future[Any]", now: Clock) -> None:
        self._future, self._now = asyncio.wrap_future(future), now

    async def by(self, until: float | None) -> bool:
        """See Awaited."""
        await asyncio.wait([self._future], timeout=None if until is None else max(until - self._now(), 0.0))
        if self._future.done() and not self._future.cancelled():
            self._future.exception()  # asyncio warns of one that nobody asks for; it is asked for in the other thread's future
        return self._future.done()


ASYNCIO = AsyncioMachine()
