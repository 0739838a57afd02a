"""A thread that runs graphs and does nothing else: while a device computes, the model's thread gets the next batch ready."""

from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from service.machine import Condition, Machine

T = TypeVar("T")


class Flight(Generic[T]):
    """A work on its way through a device.

    Args:
        work: to be done once.

    Attributes:
        over: whether it is done, or has failed.
        fatal: whether it ended with what is no Exception, but the end of a thread.
    """

    _outcome: T | BaseException

    def __init__(self, work: Callable[[], T]) -> None:
        self.over = self.fatal = False
        self._work = work

    def run(self) -> None:
        """Do the work, and keep nothing of what it was done with."""
        self._outcome = _outcome(self._work)
        self.fatal = isinstance(self._outcome, BaseException) and not isinstance(self._outcome, Exception)
        del self._work
        self.over = True

    def take(self) -> T | BaseException:
        """What it returned, or what it raised; once, after it is over.

        It is neither kept nor raised here: an error whose traceback leads back to it would keep the batch until the garbage
        collector comes.
        """
        outcome = self._outcome
        del self._outcome
        return outcome


class Device:
    """Does works one after the other, in the order in which they come, on a thread that starts with the first.

    A work that ends with what is no Exception ends the thread.

    Args:
        machine: has the thread.
        landed: notified whenever a work is over.

    Attributes:
        dead: whether the thread has ended.
    """

    def __init__(self, machine: Machine, landed: Condition) -> None:
        self._landed, self._changed = landed, machine.condition()
        self._waiting: deque[Flight[Any]] = deque()
        self._closed = self.dead = False
        self._thread = machine.thread(self._run, "device")

    def begin(self, flight: Flight[Any]) -> None:
        """Do this after what was begun before."""
        with self._changed:
            self._waiting.append(flight)
            self._changed.notify()
        if self._thread.ident is None:
            self._thread.start()

    def wait(self, flight: Flight[Any]) -> None:
        """Wait until this is over."""
        with self._landed:
            while not flight.over:
                self._landed.wait()

    def do(self, work: Callable[[], T]) -> T:
        """Do this, while who calls waits. Raises what it raises."""
        flight = Flight(work)
        self.begin(flight)
        self.wait(flight)
        outcome = flight.take()
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def close(self) -> None:
        """The thread ends after the work in hand; what waits is not done."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        try:
            while self._go_on():
                pass
        finally:
            self.dead = True

    def _go_on(self) -> bool:
        """One work; False when closed. It ends holding nothing of it."""
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
