"""Understands stored documents in the background (see `keyblock.meaning`), in one thread that gives way to requests.

Nothing depends on it: until a document is understood, it is ranked as one that came with its request. What a process leaves
unread, the next one finds in the store's notes, or at the document's next use.
"""

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import NamedTuple

from keyblock.meaning import Understanding
from service.store.base import StoreError, StoreFullError, StoreUnavailableError
from service.store.codec import StoredDocument
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
MOST_WAITING = 100_000  # documents: one that finds no place waits for its next use
LOWEST = 19  # priority of the thread
WAIT = 0.2  # seconds between two batches of the encoder while requests are in flight
RETRY = 5.0  # seconds after which a store that did not answer is tried again


class Name(NamedTuple):
    """A stored document's namespace and id."""

    namespace: str
    id: str


class ClosingError(Exception):
    """The process ends."""


class BackgroundReading:
    """Understands documents of a store. Safe to use from several threads.

    Args:
        find: the stored document of a name; None for one that is gone or was prepared by another pipeline. May raise StoreError.
        write: writes a document back unless it has changed since it was found. May raise StoreError.
        busy: whether requests are in flight.
        metrics: counts the documents.
        noted: names that an earlier process left unread.
    """

    def __init__(
        self,
        find: Callable[[Name], StoredDocument | None],
        write: Callable[[Name, StoredDocument, StoredDocument], object],
        busy: Callable[[], bool],
        metrics: Metrics,
        noted: Callable[[], Iterable[Name]],
    ) -> None:
        self._find, self._write, self._busy, self._metrics, self._noted = find, write, busy, metrics, noted
        self._waiting: dict[Name, None] = {}
        self._changed = threading.Condition()
        self._closing = False
        self._understanding: Understanding | None = None
        self._thread: threading.Thread | None = None

    @property
    def understanding(self) -> Understanding | None:
        """What understands the documents; None: nothing does."""
        return self._understanding

    @understanding.setter
    def understanding(self, understanding: Understanding | None) -> None:
        with self._changed:
            self._understanding = understanding
            if understanding is not None and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="understand", daemon=True)
                self._thread.start()

    def add(self, names: Iterable[Name]) -> None:
        """Let documents be understood; one that waits already, or finds no place, is left out."""
        if self._understanding is None:
            return
        with self._changed:
            for name in names:
                if len(self._waiting) < MOST_WAITING:
                    self._waiting[name] = None
            self._changed.notify()

    @property
    def waiting(self) -> int:
        """Documents that wait."""
        return len(self._waiting)

    def close(self) -> None:
        """Stop after the batch in hand."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if (thread := self._thread) is not None:
            thread.join()

    def _run(self) -> None:
        if sys.platform == "linux":  # there a thread has a priority of its own
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), LOWEST)
        noted = False
        while not self._closing:
            try:
                if not noted:
                    self.add(self._noted())
                    noted = True
                self._next()
            except ClosingError:
                return
            except StoreFullError as error:
                log.warning("a stored document is not understood: %s", error)
            except StoreError as error:
                log.warning("stored documents are understood later: %s", error)
                self._rest(RETRY)
            except Exception:
                log.exception("stored documents are not understood until the next reload or start")
                with self._changed:
                    self._understanding = self._thread = None
                return

    def _next(self) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._closing)
            if self._closing:
                return
            name = next(iter(self._waiting))
            del self._waiting[name]
        try:
            self._understand(name)
        except StoreUnavailableError:
            self.add([name])
            raise

    def _understand(self, name: Name) -> None:
        understanding, document = self._understanding, self._find(name)
        if document is not None and understanding is not None and not understanding.has_read(document.prepared):
            self._write(name, document, replace(document, prepared=understanding.read(document.prepared, self._pause)))
            self._metrics.add("understood")

    def _pause(self, _: int) -> None:
        if self._busy():
            self._rest(WAIT)
        if self._closing:
            raise ClosingError

    def _rest(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        with self._changed:
            while not self._closing and (left := until - time.monotonic()) > 0:
                self._changed.wait(left)
