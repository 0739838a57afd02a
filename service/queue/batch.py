"""Runs batches of token ids through a graph, on the model's thread or on one beside it.

Where a GPU computes, a thread of its own only runs graphs: meanwhile the model's thread prepares the next batch. A graph's first
runs are its warm-up: they measure how many rows a batch may have. A new request waits for the running batch, so a batch should be
short. On a CPU, a token takes as long in a batch of few rows as in a batch of many; on a GPU even the largest batch is short.
"""

import itertools
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from keyblock.packing import Packed
from keyblock.runtime import batching
from keyblock.runtime.session import Marked, Session
from keyblock.text.tokenizer import Tokenizer
from service.pace import Pace
from service.queue.schedule import Lane

log = logging.getLogger(__name__)
ALIKE = 0.85  # if a run takes at least this share of another run's time, the two runs agree
TRIES = 2  # repeated runs: on a machine that does other work as well, one slow run says little
TOLERANCE = 1.3  # times the time expected at the last shape's pace: a faster run paid for no preparation and is not repeated
T = TypeVar("T")

_NUMBERS = itertools.count()


class Caps(NamedTuple):
    """The limits of a batch.

    Attributes:
        tokens: padding included; also the limit of the [CLS] states that are combined at once.
        seconds: as measured in the warm-up; a single sequence may take longer.
        hung_after: seconds after which a batch is taken to hang.
    """

    tokens: int
    seconds: float
    hung_after: float = 60.0


class Filled(NamedTuple):
    """A batch that is ready to run.

    Attributes:
        arrays: token ids, type ids and mask, each of shape (rows, length).
        sequences: the number of sequences; rows beyond them repeat the first.
    """

    arrays: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
    sequences: int


class BatchResult(NamedTuple):
    """The outputs of a batch.

    Attributes:
        outputs: of the batch's sequences, in their order.
        marks: shape (sequences, length); None if the graph does not mark tokens.
        tokens: fed to the graph, padding included.
        seconds: the time that the graph took.
    """

    outputs: NDArray[np.float32]
    marks: NDArray[np.float32] | None
    tokens: int
    seconds: float


class Encoder(Lane):
    """One graph of a model; one thread at a time runs it.

    Args:
        graph: scores the batches.
        model: the model's name, for metrics.
        tokenizer: gives the padding token and the type of document tokens.
        pace: seconds per token, shared by all graphs of the model.
        ahead: see `service.queue.graphs.Graphs`.

    Attributes:
        identity: 8 bytes, unique within this process.
    """

    def __init__(self, graph: batching.Scorer, model: str, tokenizer: Tokenizer, pace: Pace, ahead: int = 0) -> None:
        super().__init__(pace)
        self.graph = graph
        self.model = model
        self.ahead = ahead
        self.identity = next(_NUMBERS).to_bytes(8, "little")
        self._pad_id = tokenizer.pad_id
        self._document_type = tokenizer.template.document_type

    def fill(self, batch: batching.Batch, packed: Sequence[Packed]) -> Filled:
        """Fill a batch with these sequences."""
        return Filled(batching.fill(batch, packed, self._pad_id, self._document_type), len(batch.positions))

    def run(self, filled: Filled) -> BatchResult:
        """Run a batch, on any thread. Raises what the graph raises."""
        started = time.perf_counter()
        outputs, marks = self._outputs(*filled.arrays)
        seconds, n_sequences = time.perf_counter() - started, filled.sequences
        return BatchResult(outputs[:n_sequences], None if marks is None else marks[:n_sequences], filled.arrays[0].size, seconds)

    def _outputs(self, *arrays: NDArray[np.int64]) -> Marked:
        return self.graph.mark(*arrays) if isinstance(self.graph, Session) else Marked(self.graph.score(*arrays), None)

    def first_runs(self, longest: int, caps: Caps) -> Iterator[None]:
        """Run the graph in every shape that it may meet, for sequences of up to `longest` tokens; yields after each run."""
        for run in first_runs(self.graph, batching.capped(longest, caps.tokens), caps.seconds):
            if run is not None:
                rows, length, seconds = run
                self.most_rows[length] = rows
                self.pace.measured(rows * length, seconds)
            yield


Run = tuple[int, int, float]
"""Rows, length, and the seconds that a run of this shape takes."""


def first_runs(graph: batching.Scorer, most: Mapping[int, int], seconds: float) -> Iterator[Run | None]:
    """Run a graph in ever larger shapes: for each length one row, then more rows while the runs are quick and memory suffices.

    Args:
        graph: the graph to run.
        most: most rows of a batch, by length.
        seconds: seconds that a batch of several rows may take.

    Yields:
        After each run, so that other work may run in between: a shape that may be used from now on (rows ascend), or None.

    Raises what the graph raises, but BatchTooLargeError only if a single row is too large.
    """
    pace = 0.0  # seconds per token in the last shape
    for length in sorted(most):
        taken, measured_rows, usual = 0.0, 1, 0.0
        for rows in batching.row_counts(most[length]):
            expected = taken * rows / measured_rows
            clear = taken < usual and expected > TOLERANCE * seconds  # else noise could be the reason: measure again
            if expected > seconds and not clear:
                taken = yield from _again(graph, measured_rows, length, taken, seconds * measured_rows / rows)
            if taken * rows / measured_rows > seconds:
                break
            usual = TOLERANCE * pace * rows * length
            try:
                taken = yield from _timed(graph, rows, length, seconds, usual)
            except batching.BatchTooLargeError as error:
                if rows == 1:
                    raise
                log.warning("batches of %d tokens have fewer than %d rows, for want of memory: %s", length, rows, error)
                break
            measured_rows, pace = rows, taken / (rows * length)
            if rows == 1 or taken <= seconds:
                yield rows, length, taken


def _timed(graph: batching.Scorer, rows: int, length: int, limit: float, expected: float) -> Generator[None, None, float]:
    """Seconds of a run: of the first if it is as quick as expected, else the least of several, see `_again`. Yields in between."""
    first = _run(graph, rows, length)
    return first if first < min(expected, limit) else (yield from _again(graph, rows, length, first, limit))


def _again(graph: batching.Scorer, rows: int, length: int, best: float, limit: float) -> Generator[None, None, float]:
    """Least seconds of `best` and up to TRIES runs, until one is within the limit or agrees with the best. Yields before each."""
    for _ in range(TRIES):
        yield
        taken = _run(graph, rows, length)
        decided = taken <= limit or taken >= ALIKE * best
        best = min(best, taken)
        if decided:
            break
    return best


def _run(graph: batching.Scorer, rows: int, length: int) -> float:
    """Seconds that one run takes."""
    ones = np.ones((rows, length), dtype=np.int64)
    types = np.zeros_like(ones)
    started = time.perf_counter()
    graph.score(ones, types, ones)
    return time.perf_counter() - started


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
