"""A machine whose clock is a number and whose threads take turns; it stands in for Python's own in the modules of the service.

Each simulated thread has a real thread, and one runs at a time, until it spends time, waits, or ends. So other threads run between
the steps of a thread's work, and a seed decides the order.
"""

import random
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from random import Random
from types import ModuleType
from typing import Any, Self, TypeVar, cast

import httpx

from benchmarks.simulation.loop import MOST_AT_ONCE, Loop, StuckError

T = TypeVar("T")
DEFAULT_THREADS = 6  # asyncio's default threads
HELD_SECONDS = 60.0  # of the real clock: a thread that is stuck longer waits for a lock of a sleeping thread

REAL = ThreadPoolExecutor(1000, "simulated")  # simulated threads borrow its threads: to start one takes longer than most work
Promise = Any
"""A future of asyncio or of threads."""


class EndedError(BaseException):
    """Ends a thread when the simulation ends."""


class StandIn(ModuleType):
    """A module with some names replaced."""

    def __init__(self, real: ModuleType, **replaced: Any) -> None:
        super().__init__(real.__name__)
        self._real = real
        vars(self).update(replaced)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


def _of_the_service() -> list[ModuleType]:
    return [module for name, module in sys.modules.items() if name.startswith("service.")]


class SimulatedMachine:
    """The clock and the threads of a simulation; waiting is asyncio's own, on the simulation's loop.

    Args:
        random: source of random numbers.
        interleaves: whether the steps of work in pools interleave. Otherwise all of a work is done when it begins, and its result
            arrives when its time is over, which is several times as fast.

    Attributes:
        loop: provides the clock.
        wall_is: seconds by which the wall clock is ahead.
        carrier: transport of requests to other servers.
        threads: started and unfinished threads, in order.
        current: the running thread.
    """

    def __init__(self, random: Random, *, interleaves: bool = True) -> None:
        self.interleaves, self._spent = interleaves, cast("float | None", None)
        self.loop, self.wall_is = Loop(), 1.8e9
        self.carrier: httpx.AsyncBaseTransport | None = None
        self._random = random
        self.loop.set_default_executor(SimulatedPool(self, DEFAULT_THREADS))
        self.threads: dict[SimulatedThread, None] = {}
        self.current: SimulatedThread | None = None

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """Run the loop, and the modules of the service on this machine instead of Python's clock and threads."""
        parts: dict[int, object] = {
            id(time): StandIn(time, perf_counter=self.now, time=self.wall),
            id(threading): StandIn(threading, Thread=self.thread, Condition=lambda: SimulatedCondition(self)),
            id(ThreadPoolExecutor): self.pool,
            id(random): StandIn(random, uniform=self._random.uniform),
            id(httpx): StandIn(httpx, AsyncClient=lambda **options: httpx.AsyncClient(transport=self.carrier, **options)),
        }
        modules = _of_the_service()
        real = [(module, name, one) for module in modules for name, one in vars(module).items() if id(one) in parts]
        for module, name, one in real:
            setattr(module, name, parts[id(one)])
        try:
            with self.loop.running():
                yield
        finally:
            for module, name, one in real:
                setattr(module, name, one)
        if late := [module.__name__ for module in _of_the_service() if module not in modules]:
            raise RuntimeError(f"imported during the run, so on Python's own clock: {late}")

    def now(self) -> float:
        """Seconds since the beginning. Work that is done at once sees the time pass that it spends."""
        return self.loop.seconds + (self._spent or 0.0)

    def wall(self) -> float:
        """Seconds since 1970, by a clock that may jump."""
        return self.now() + self.wall_is

    def pool(self, threads: int, name: str = "") -> Executor:
        """A pool of threads; without a name a real one, whose work takes no time."""
        return SimulatedPool(self, threads) if name else ThreadPoolExecutor(threads)

    def thread(self, target: Callable[[], None], **_about: Any) -> "SimulatedThread":
        """A thread for this work."""
        return SimulatedThread(self, target)

    def spend(self, seconds: float) -> None:
        """Spend time in the running thread. If it is the loop's own, only other threads go on meanwhile."""
        thread = self.current
        if self._spent is not None:
            self._spent += seconds
            return
        if thread is None:
            self.loop.block(lambda: False, self.loop.seconds + seconds)
            return
        self.loop.at(self.loop.seconds + seconds, thread.go_on, of_thread=True)
        thread.rest()

    def at_once(self, work: Callable[[], T]) -> tuple[T, float]:
        """The result of the work and the seconds it spends; the clock does not move yet."""
        outer, self._spent = self._spent, 0.0
        try:
            return work(), self._spent
        finally:
            self._spent = outer

    def end(self) -> None:
        """End every thread."""
        for thread in list(self.threads):
            thread.end()

    def running(self) -> "SimulatedThread":
        """The thread whose work calls this. Raises RuntimeError for the loop's own."""
        if self.current is None:
            raise RuntimeError("who rests is no thread of the simulation")
        return self.current


class SimulatedThread:
    """See `threading.Thread`. The loop's step raises the exceptions of its work.

    Args:
        machine: the thread's machine.
        work: the thread's work.
    """

    def __init__(self, machine: SimulatedMachine, work: Callable[[], None]) -> None:
        self.ident: int | None = None
        self._machine, self._work = machine, work
        self._goes_on, self._rests = threading.Semaphore(0), threading.Semaphore(0)
        self._begun = self._over = self._ends = False
        self._raised: BaseException | None = None

    def start(self) -> None:
        """See threading.Thread."""
        self.ident = id(self)
        self.soon()

    def is_alive(self) -> bool:
        """See threading.Thread."""
        return self.ident is not None and not self._over

    def join(self, timeout: float | None = None) -> None:
        """See threading.Thread; for the loop's own thread."""
        loop = self._machine.loop
        loop.block(lambda: self._over, None if timeout is None else loop.seconds + timeout)

    def soon(self) -> None:
        """Let the thread go on after all events that are due now."""
        self._machine.loop.at(self._machine.loop.seconds, self.go_on, of_thread=True)

    def go_on(self) -> None:
        """Run the thread until it rests or ends, while the caller waits. Raises the exception of its work, and StuckError."""
        if self._over:
            return
        machine = self._machine
        machine.current, machine.threads[self] = self, None
        if self._begun:
            self._goes_on.release()
        else:
            self._begun = True
            REAL.submit(self._run)
        if not self._rests.acquire(timeout=HELD_SECONDS):
            raise StuckError("a thread waits for a lock that is held by another, which sleeps")
        machine.current = None
        if self._over:
            del machine.threads[self]
        if self._raised is not None:
            raise self._raised

    def rest(self) -> None:
        """Called by the thread's own work: other threads run until it goes on."""
        self._rests.release()
        self._goes_on.acquire()
        if self._ends:
            raise EndedError

    def end(self) -> None:
        """End the thread without the rest of its work."""
        self._ends = True
        while not self._over:
            self.go_on()

    def _run(self) -> None:
        try:
            self._work()
        except EndedError:
            pass
        except BaseException as error:
            self._raised = error
        self._over = True
        self._rests.release()


class SimulatedCondition:
    """See `threading.Condition`. A thread that holds it must not rest: other threads would wait for ever."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine, self._held = machine, False
        self._times, self._since = 0, -1.0  # times that it was taken at the same moment, and that moment
        self._waiting: deque[SimulatedThread] = deque()

    def __enter__(self) -> Self:
        if self._held:
            raise StuckError("a lock is taken that is held by a thread which sleeps")
        now = self._machine.loop.seconds
        self._times, self._since = self._times + 1 if now == self._since else 0, now
        if self._times > MOST_AT_ONCE:
            raise StuckError(f"a lock is taken {MOST_AT_ONCE} times, and time does not pass")
        self._held = True
        return self

    def __exit__(self, *_: object) -> None:
        self._held = False

    def wait(self) -> None:
        """See threading.Condition."""
        thread = self._machine.running()
        self._waiting.append(thread)
        self._held = False
        thread.rest()
        self._held = True

    def notify(self) -> None:
        """See threading.Condition."""
        if self._waiting:
            self._waiting.popleft().soon()


class SimulatedPool(Executor):
    """A pool of threads that takes work in the order of submission.

    Args:
        machine: the threads' machine.
        threads: number of threads.
    """

    def __init__(self, machine: SimulatedMachine, threads: int) -> None:
        self._machine, self._free, self._threads = machine, threads, threads
        self._queue: deque[tuple[Promise, Callable[..., Any], tuple[Any, ...]]] = deque()
        self._closed = False

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **_none: Any) -> Future[Any]:
        """See Executor."""
        future: Future[Any] = Future()
        self.serve(future, work, arguments)
        return future

    def serve(self, promise: Promise, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Do the work and set the promise's result or exception, unless it is cancelled before the work begins."""
        if self._closed:
            raise RuntimeError("cannot schedule new futures after shutdown")
        self._queue.append((promise, work, arguments))
        self._take()

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """See Executor; for the loop's own thread."""
        self._closed = True
        while cancel_futures and self._queue:
            self._queue.popleft()[0].cancel()
        if wait:
            self._machine.loop.block(lambda: self._free == self._threads and not self._queue)

    def _take(self) -> None:
        while self._free and self._queue:
            promise, work, arguments = self._queue.popleft()
            if promise.cancelled():
                continue
            self._free -= 1
            if self._machine.interleaves:
                SimulatedThread(self._machine, partial(self._do, promise, work, arguments)).start()
            else:
                outcome, seconds = self._machine.at_once(partial(_outcome, work, arguments))
                self._machine.loop.at(self._machine.loop.seconds + seconds, self._over, promise, outcome, of_thread=True)

    def _do(self, promise: Promise, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        self._over(promise, _outcome(work, arguments))

    def _over(self, promise: Promise, outcome: tuple[Any, Exception | None]) -> None:
        result, error = outcome
        if not promise.cancelled():  # nobody needs the result of a cancelled one
            promise.set_result(result) if error is None else promise.set_exception(error)
        self._free += 1
        self._take()


def _outcome(work: Callable[..., Any], arguments: tuple[Any, ...]) -> tuple[Any, Exception | None]:
    """The result of the work, or its exception."""
    try:
        return work(*arguments), None
    except Exception as error:
        return None, error
