"""A machine whose clock is a number and whose threads are events: it keeps the contract of `service.machine.Machine`."""

import heapq
from asyncio import CancelledError
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor
from contextlib import AbstractAsyncContextManager
from typing import Any, Self

MOST_AT_ONCE = 10_000  # events of one moment; more is a loop that gets nowhere


class StuckError(Exception):
    """Events follow each other and time does not pass."""


class _Suspended:
    """Awaited by a coroutine that goes on when its process is resumed."""

    def __await__(self) -> Any:
        yield


SUSPENDED = _Suspended()


class Process:
    """A coroutine on its way.

    Attributes:
        ended: whether it is.
        error: what it ended with, if anything.
    """

    __slots__ = ("_asked_to_end", "_coroutine", "_machine", "_on_end", "_turn", "cancels", "ended", "error")

    def __init__(
        self, machine: "SimulatedMachine", coroutine: Coroutine[Any, Any, None], on_end: Callable[["Process"], None] | None = None
    ) -> None:
        self._machine, self._coroutine, self._on_end = machine, coroutine, on_end
        self._turn = self.cancels = 0
        self._asked_to_end = self.ended = False
        self.error: BaseException | None = None

    def later(self) -> Callable[[], None]:
        """What resumes it where it now comes to wait, and does nothing once it is past that."""
        turn = self._turn
        return lambda: self._step(None) if turn == self._turn else None

    def cancel(self) -> None:
        """It ends with CancelledError where it waits."""
        if not self.ended:
            self.cancels += 1
            self._asked_to_end = True
            self._machine.soon(self._end)

    def _end(self) -> None:
        if self._asked_to_end:
            self._asked_to_end = False
            self._step(CancelledError())

    def start(self) -> Self:
        """Run it until it waits."""
        self._step(None)
        return self

    def _step(self, error: BaseException | None) -> None:
        if self.ended:
            return
        self._turn += 1
        before, self._machine.current = self._machine.current, self
        try:
            self._coroutine.send(None) if error is None else self._coroutine.throw(error)
        except StopIteration:
            self.ended = True
        except (Exception, CancelledError) as ended_with:
            self.ended, self.error = True, ended_with
        finally:
            self._machine.current = before
        if self.ended and self._on_end is not None:
            self._on_end(self)


class SimulatedMachine:
    """Events in the order of their times, and of their making where these are equal.

    Attributes:
        time: seconds since the beginning.
        wall_is: seconds that the wall clock is ahead of that.
        events: so far.
        spent_in_vain: what the last work that raised took.
    """

    def __init__(self) -> None:
        self.time, self.wall_is, self.events = 0.0, 1.8e9, 0
        self.current: Process | None = None
        self._spent = self.spent_in_vain = 0.0
        self._queue: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._made = self._at_once = 0

    def now(self) -> float:
        """See Machine; work in hand sees the time pass that it spends."""
        return self.time + self._spent

    def wall(self) -> float:
        """See Machine."""
        return self.now() + self.wall_is

    def at(self, when: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call it then, or now where that is past."""
        self._made += 1
        heapq.heappush(self._queue, (max(when, self.time), self._made, call, arguments))

    def soon(self, call: Callable[..., None], *arguments: Any) -> None:
        """Call it after what is due now."""
        self.at(self.time, call, *arguments)

    def step(self) -> bool:
        """The next event; False where there is none. Raises StuckError, and what the event raises."""
        if not self._queue:
            return False
        when, _, call, arguments = heapq.heappop(self._queue)
        self._at_once = self._at_once + 1 if when == self.time else 0
        if self._at_once > MOST_AT_ONCE:
            raise StuckError(f"{MOST_AT_ONCE} events follow each other, and time does not pass")
        self.time = when
        self.events += 1
        call(*arguments)
        return True

    def spend(self, seconds: float) -> None:
        """Work in hand takes so long."""
        self._spent += seconds

    def took(self, work: Callable[..., Any], *arguments: Any) -> tuple[Any, float]:
        """What the work returns, and the seconds that it spends. Raises what it raises, after `spent_in_vain`."""
        outer, self._spent = self._spent, 0.0
        try:
            return work(*arguments), self._spent
        finally:
            self.spent_in_vain, self._spent = self._spent, outer

    def begin(self, coroutine: Coroutine[Any, Any, None], on_end: Callable[[Process], None] | None = None) -> Process:
        """A process, run until it waits."""
        return Process(self, coroutine, on_end).start()

    def pool(self, threads: int, name: str) -> Executor:
        """See Machine."""
        return _Pool(self, threads)

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        self.at(self.time + seconds, self._waiting().later())
        await SUSPENDED

    async def run(self, pool: Executor | None, work: Callable[..., Any], *arguments: Any) -> Any:
        """See Machine."""
        future = (pool or self.pool(1, "any")).submit(work, *arguments)
        try:
            await self.awaited(future).by(None)
        except CancelledError:
            future.cancel()
            raise
        return future.result()

    def timeout(self, until: float | None) -> AbstractAsyncContextManager[object]:
        """See Machine."""
        return _Timeout(self, until)

    async def together(self, works: Iterable[Coroutine[Any, Any, None]]) -> None:
        """See Machine."""
        group = _Group(self, self._waiting())
        await group.run(works)

    def awaited(self, future: Any) -> "_Awaited":
        """See Machine."""
        return _Awaited(self, future)

    def _waiting(self) -> Process:
        if self.current is None:
            raise RuntimeError("who waits is no process of the simulation")
        return self.current


class _Awaited:
    """See `service.machine.Awaited`."""

    def __init__(self, machine: SimulatedMachine, future: Any) -> None:
        self._machine, self._future = machine, future

    async def by(self, until: float | None) -> bool:
        """See Awaited."""
        machine, future = self._machine, self._future
        if not future.done():
            resume = machine._waiting().later()
            future.add_done_callback(lambda _: machine.soon(resume))
            if until is not None:
                machine.at(until, resume)
            await SUSPENDED
        return future.done()


class _Timeout(AbstractAsyncContextManager[object]):
    def __init__(self, machine: SimulatedMachine, until: float | None) -> None:
        self._machine, self._until = machine, until
        self._process = machine._waiting()
        self._over = self._expired = False

    async def __aenter__(self) -> object:
        if self._until is not None:
            self._machine.at(self._until, self._expire)
        return self

    def _expire(self) -> None:
        if not self._over:
            self._expired = True
            self._process.cancel()

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._over = True
        if self._expired:
            self._process.cancels -= 1
            self._process._asked_to_end &= self._process.cancels > 0
            if self._process.cancels == 0 and kind is CancelledError:
                raise TimeoutError from error


class _Group:
    def __init__(self, machine: SimulatedMachine, parent: Process) -> None:
        self._machine, self._parent = machine, parent
        self._members: list[Process] = []
        self._errors: list[Exception] = []
        self._resume: Callable[[], None] | None = None

    async def run(self, works: Iterable[Coroutine[Any, Any, None]]) -> None:
        for work in works:
            member = Process(self._machine, work, self._ended)
            self._members.append(member)
            member.start()
        try:
            await self._all_ended()
        except CancelledError:
            self._cancel()
            await self._all_ended()
            raise
        if self._errors:
            raise ExceptionGroup("some of these failed", self._errors)

    async def _all_ended(self) -> None:
        while not all(member.ended for member in self._members):
            self._resume = self._parent.later()
            await SUSPENDED

    def _cancel(self) -> None:
        for member in self._members:
            member.cancel()

    def _ended(self, member: Process) -> None:
        if isinstance(member.error, Exception):
            self._errors.append(member.error)
            self._cancel()
        if self._resume is not None:
            self._machine.soon(self._resume)


class _Outcome:
    """A future of work that runs in no thread: what the service asks of a `concurrent.futures.Future`, at a tenth of its cost."""

    __slots__ = ("_callbacks", "_cancelled", "_done", "_error", "_result")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Any], None]] = []
        self._done = self._cancelled = False
        self._result: Any = None
        self._error: Exception | None = None

    def done(self) -> bool:
        return self._done or self._cancelled

    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> bool:
        self._cancelled = self._cancelled or not self._done
        return self._cancelled

    def add_done_callback(self, callback: Callable[[Any], None]) -> None:
        self._callbacks.append(callback)

    def result(self) -> Any:
        if self._error is not None:
            raise self._error
        return self._result

    def end(self, result: Any, error: Exception | None) -> None:
        self._done, self._result, self._error = True, result, error
        for callback in self._callbacks:
            callback(self)


class _Pool(Executor):
    """Threads that take work first come, first served; it is done as it begins, and known when its time is over."""

    def __init__(self, machine: SimulatedMachine, threads: int) -> None:
        self._machine, self._free = machine, threads
        self._queue: deque[tuple[_Outcome, Callable[..., Any], tuple[Any, ...]]] = deque()

    def submit(self, work: Callable[..., Any], /, *arguments: Any, **_none: Any) -> Any:
        """See Executor."""
        outcome = _Outcome()
        self._queue.append((outcome, work, arguments))
        self._go_on()
        return outcome

    def _go_on(self) -> None:
        while self._free and self._queue:
            outcome, work, arguments = self._queue.popleft()
            if not outcome.cancelled():
                self._free -= 1
                self._begin(outcome, work, arguments)

    def _begin(self, outcome: _Outcome, work: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        machine = self._machine
        process, machine.current = machine.current, None
        result, error, seconds = None, None, 0.0
        try:
            result, seconds = machine.took(work, *arguments)
        except Exception as raised:
            error, seconds = raised, machine.spent_in_vain
        machine.current = process
        machine.at(machine.time + seconds, self._end, outcome, result, error)

    def _end(self, outcome: _Outcome, result: Any, error: Exception | None) -> None:
        self._free += 1
        outcome.end(result, error)  # also of one that was cancelled meanwhile: a thread cannot be stopped
        self._go_on()
