"""The clock, the threads and the waiting of the service, which are passed in as a `Machine`.

The service runs on this machine's, with asyncio. A simulation passes in its own, whose clock is a number and whose threads are
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
"""Seconds since an arbitrary start; never jumps."""


class Awaited(Protocol):
    """A future of another thread, for a coroutine to wait for."""

    async def wait_until(self, until: float | None) -> bool:
        """Wait until the future is done or the deadline passes; None: no deadline. Returns whether it is done."""


class Thread(Protocol):
    """A thread: the part of `threading.Thread` that the service uses."""

    @property
    def ident(self) -> int | None:
        """None before it is started."""

    def start(self) -> None:
        """Start the thread's work."""

    def is_alive(self) -> bool:
        """Whether the thread has started, and its work is not over."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until the work is over, for at most `timeout` seconds."""


class Condition(AbstractContextManager[Any], Protocol):
    """A lock on which threads can wait: the part of `threading.Condition` that the service uses."""

    def wait(self) -> Any:
        """Wait until another thread notifies; the lock is released meanwhile."""

    def notify(self) -> None:
        """Wake one waiting thread."""


class Machine(Protocol):
    """The clock, threads and network that the service runs on."""

    def now(self) -> float:
        """Seconds since an arbitrary start; never jumps."""

    def wall(self) -> float:
        """Seconds since 1970, by this machine's clock, which may jump either way."""

    def uniform(self, low: float, high: float) -> float:
        """A random number between these."""

    def pool(self, threads: int, name: str) -> Executor:
        """A pool of threads with this name."""

    def thread(self, work: Callable[[], None], name: str) -> Thread:
        """A thread for this work; the process does not wait for it when it ends."""

    def condition(self) -> Condition:
        """A condition for threads to wait on."""

    def transport(self) -> "httpx.AsyncBaseTransport | None":
        """The transport of outgoing HTTP requests; None for httpx's own, on sockets."""

    async def run(self, pool: Executor | None, work: Callable[..., T], *arguments: Any) -> T:
        """Run the work in the pool, or in any thread for None. Cancelling the await drops the work if it has not begun."""

    def timeout(self, until: float | None) -> AbstractAsyncContextManager[object]:
        """A context whose body ends with TimeoutError if it still waits at the deadline; None for no deadline."""

    async def together(self, works: Iterable[Coroutine[Any, Any, None]]) -> None:
        """Run all at once until each is done; if one fails, the others are cancelled. Raises ExceptionGroup."""

    def awaited(self, future: "Future[Any]") -> Awaited:
        """Make a future of another thread awaitable."""


class AsyncioMachine:
    """The clocks and threads of this machine, on the running event loop."""

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

    async def wait_until(self, until: float | None) -> bool:
        """See Awaited."""
        await asyncio.wait([self._future], timeout=None if until is None else max(until - self._now(), 0.0))
        if self._future.done() and not self._future.cancelled():
            self._future.exception()  # marks it as seen, to stop asyncio's warning: callers read the other thread's future
        return self._future.done()


ASYNCIO = AsyncioMachine()
