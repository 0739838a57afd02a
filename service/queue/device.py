"""A thread that only runs graphs: while a device computes, the model's thread prepares the next batch."""

import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class PendingBatch(Generic[T]):
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

    A call that raises something that is not an Exception ends the thread. The process does not wait for it when it ends.

    Args:
        finished: notified whenever a call is over.

    Attributes:
        dead: whether the thread has ended.
    """

    def __init__(self, finished: threading.Condition) -> None:
        self._finished, self._changed = finished, threading.Condition()
        self._waiting: deque[PendingBatch[Any]] = deque()
        self._closed = self.dead = False
        self._thread = threading.Thread(target=self._run, name="device", daemon=True)

    def begin(self, batch: PendingBatch[Any]) -> None:
        """Queue a call behind those that were queued before."""
        with self._changed:
            self._waiting.append(batch)
            self._changed.notify()
        if self._thread.ident is None:
            self._thread.start()

    def wait(self, batch: PendingBatch[Any]) -> None:
        """Wait until this call is over."""
        with self._finished:
            while not batch.finished:
                self._finished.wait()

    def do(self, work: Callable[[], T]) -> T:
        """Make this call on the thread and wait for its result. Raises what the call raises."""
        batch = PendingBatch(work)
        self.begin(batch)
        self.wait(batch)
        outcome = batch.take()
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
            batch = self._waiting.popleft()
        batch.run()
        with self._finished:
            self._finished.notify()
        return not batch.fatal


def _outcome(work: Callable[[], T]) -> T | BaseException:
    try:
        return work()
    except BaseException as error:
        return error
