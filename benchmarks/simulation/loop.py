"""An asyncio event loop whose clock is a number. Its tasks, locks and timeouts are asyncio's own, and repeat exactly."""

import asyncio
import gc
import heapq
import sys
from asyncio import events
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from contextvars import Context
from typing import Any

MOST_AT_ONCE = 10_000  # events of one moment; more means an endless loop


class StuckError(Exception):
    """Events go on without time passing, or something waits and there is no event."""


class Event(asyncio.TimerHandle):
    """A future event.

    Attributes:
        of_thread: whether it also happens while the loop's own thread is blocked.
    """

    __slots__ = ("of_thread",)
    of_thread: bool


class Numbered(asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address: a task group cancels its members in a set's order."""

    def __init__(self, number: int, *arguments: Any, **named: Any) -> None:
        self._number = number
        super().__init__(*arguments, **named)

    def __hash__(self) -> int:
        return self._number


class Loop(asyncio.AbstractEventLoop):
    """Runs events in the order of their times; events of the same time run in the order of creation. They do not overlap.

    Attributes:
        seconds: seconds since the beginning.
        n_events: events so far.
        problem: exception of a task or callback that nothing awaited.
    """

    def __init__(self) -> None:
        self.seconds, self.n_events = 0.0, 0
        self.problem: BaseException | None = None
        self._queue: list[tuple[float, int, Event]] = []
        self._made = self._tasks = self._at_once = 0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make this the running loop of the thread until the block ends."""
        hooks, collects = sys.get_asyncgen_hooks(), gc.isenabled()
        gc.disable()  # otherwise asyncio would report forgotten tasks at any time
        gc.freeze()  # so that `forget` examines only the objects of this run, not all imported ones
        sys.set_asyncgen_hooks(finalizer=lambda generator: self.create_task(generator.aclose()) and None)
        events._set_running_loop(self)
        try:
            yield
        finally:
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
            gc.unfreeze()
            if collects:
                gc.enable()

    def step(self) -> bool:
        """Run the next event. Returns False if there is none. Raises StuckError, and the event's exception."""
        if not self._queue:
            return False
        self._happens(*heapq.heappop(self._queue))
        return True

    def forget(self) -> None:
        """Collect the run's objects. Raises what asyncio reports about tasks that failed and were not awaited."""
        gc.collect()
        if self.problem is not None:
            raise self.problem

    def block(self, done: Callable[[], bool], until: float | None = None) -> None:
        """Block the loop's own thread, at most until that time. Only other threads go on. Raises StuckError."""
        remaining = []
        while not done():
            if until is not None and not (self._queue and self._queue[0][0] <= until):
                self.seconds = until
                break
            if not self._queue:
                raise StuckError("the loop waits for threads of which none is ever going on")
            event = heapq.heappop(self._queue)
            if event[2].of_thread:
                self._happens(*event)
            else:
                remaining.append(event)
        for event in remaining:
            heapq.heappush(self._queue, event)

    def _happens(self, when: float, _number: int, event: Event) -> None:
        self._at_once = self._at_once + 1 if when <= self.seconds else 0
        if self._at_once > MOST_AT_ONCE:
            raise StuckError(f"{MOST_AT_ONCE} events follow each other, and time does not pass")
        self.seconds = max(when, self.seconds)
        self.n_events += 1
        if not event.cancelled():
            event._run()
        if self.problem is not None:
            raise self.problem

    def at(self, when: float, call: Callable[..., object], *arguments: Any, of_thread: bool = False) -> Event:
        """Schedule a call at a time in seconds, or now if that time is past."""
        return self._add(when, call, arguments, None, of_thread)

    def _add(
        self, when: float, call: Callable[..., object], arguments: tuple[Any, ...], context: Context | None, of_thread: bool
    ) -> Event:
        self._made += 1
        event = Event(when, call, arguments, self, context)
        event.of_thread = of_thread
        heapq.heappush(self._queue, (max(when, self.seconds), self._made, event))
        return event

    def time(self) -> float:
        """See AbstractEventLoop."""
        return self.seconds

    def call_soon(self, callback: Any, *arguments: Any, context: Context | None = None) -> Any:
        """See AbstractEventLoop."""
        return self._add(self.seconds, callback, arguments, context, False)

    call_soon_threadsafe = call_soon

    def call_at(self, when: float, callback: Any, *arguments: Any, context: Context | None = None) -> Any:
        """See AbstractEventLoop."""
        return self._add(when, callback, arguments, context, False)

    def call_later(self, delay: float, callback: Any, *arguments: Any, context: Context | None = None) -> Any:
        """See AbstractEventLoop."""
        return self._add(self.seconds + delay, callback, arguments, context, False)

    def create_future(self) -> asyncio.Future[Any]:
        """See AbstractEventLoop."""
        return asyncio.Future(loop=self)

    def create_task(self, coroutine: Coroutine[Any, Any, Any], *, name: str | None = None, context: Any = None) -> Any:  # type: ignore[override]
        """See AbstractEventLoop."""
        self._tasks += 1
        return Numbered(self._tasks, coroutine, loop=self, name=name, context=context)

    def run_in_executor(self, executor: Any, work: Callable[..., Any], *arguments: Any) -> Any:  # type: ignore[override]
        """See AbstractEventLoop; without an executor, on the one that it was given."""
        future = self.create_future()
        (executor or self._pool).serve(future, work, arguments)
        return future

    def set_default_executor(self, executor: Any) -> None:
        """See AbstractEventLoop."""
        self._pool = executor

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """See AbstractEventLoop: the next step raises it."""
        self.problem = context.get("exception") or RuntimeError(context["message"])

    def remove_signal_handler(self, _number: int) -> bool:
        """See AbstractEventLoop: there are no signals."""
        return False

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """See BaseEventLoop: a cancelled event stays in the queue, and does nothing."""

    def get_debug(self) -> bool:
        """See AbstractEventLoop."""
        return False

    def is_closed(self) -> bool:
        """See AbstractEventLoop."""
        return False
