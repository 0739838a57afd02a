"""A thread that only runs graphs: while a device computes, the model's thread prepares the next batch."""

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from service.machine import Condition, Machine

T = TypeVar("T")


class Flight(Generic[T]):
    """A call that waits for the device's thread, or runs on it.

    Args:
        work: the call; it is made once.

    Attributes:
        finished: whether the call has returned or raised.
        fatal: whether it raised something that is not an Exception, so that the thread ends.
    """

    _outcome: T | BaseException

    def __init__(self, work: Callable[[], T]) -> None:
        self.finished = self.fatal = False
        self._work = work

    def run(self) -> None:
        """Make the call, then drop it and everything that it refers to."""
        self._outcome = _outcome(self._work)
        self.fatal = isinstance(self._outcome, BaseException) and not isinstance(self._outcome, Exception)
        del self._work
        self.finished = True

    def take(self) -> T | BaseException:
        """Hand out what the call returned or raised; to be used once, after the call is over.

        An error is neither kept nor raised here: its traceback refers back to this object, and would keep the batch in memory until
        the garbage collector runs.
        """
        outcome = self._outcome
        del self._outcome
        return outcome


class Device:
    """Makes calls one after the other, in the order in which they come, on a thread that starts with the first.

    A call that raises something that is not an Exception ends the thread.

    Args:
        machine: makes the thread.
        landed: notified whenever a call is over.

    Attributes:
        dead: whether the thread has ended.
    """

    def __init__(self, machine: Machine, landed: Condition) -> None:
        self._landed, self._changed = landed, machine.condition()
        self._waiting: deque[Flight[Any]] = deque()
        self._closed = self.dead = False
        self._thread = machine.thread(self._run, "device")

    def begin(self, flight: Flight[Any]) -> None:
        """Queue a call behind those that were queued before."""
        with self._changed:
            self._waiting.append(flight)
            self._changed.notify()
        if self._thread.ident is None:
            self._thread.start()

    def wait(self, flight: Flight[Any]) -> None:
        """Wait until this call is over."""
        with self._landed:
            while not flight.finished:
                self._landed.wait()

    def do(self, work: Callable[[], T]) -> T:
        """Make this call on the thread and wait for its result. Raises what the call raises."""
        flight = Flight(work)
        self.begin(flight)
        self.wait(flight)
        outcome = flight.take()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def close(self) -> None:
        """End the thread after the call in hand; queued calls are not made."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        try:
            while self._run_next():
                pass
        finally:
            self.dead = True

    def _run_next(self) -> bool:
        """Make the next call, and keep no reference to it. False if the device is closed, or the call was fatal."""
        with self._changed:
            while not (self._waiting or self._closed):
                self._changed.wait()
            if self._closed:
                return False
            flight = self._waiting.popleft()
        flight.run()
        with self._landed:
            self._landed.notify()
        return not flight.fatal


def _outcome(work: Callable[[], T]) -> T | BaseException:
    try:
        return work()
    except BaseException as error:
        return error
