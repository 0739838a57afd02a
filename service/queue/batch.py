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
from concurrent.futures import Future
from typing import Any, NamedTuple, TypeVar

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
Do = Callable[[Callable[[], Any]], Any]
"""Makes a call on a certain thread, and returns its result."""

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

    def first_runs(self, longest: int, caps: Caps, do: Do) -> Iterator[None]:
        """Run the graph in every shape that it may meet, for sequences of up to `longest` tokens; yields after each run.

        `do` makes a call on the thread that runs the graph.
        """

        def timed(rows: int, length: int) -> float:
            ones = np.ones((rows, length), dtype=np.int64)
            seconds: float = do(lambda: self._seconds(ones))
            return seconds

        for run in first_runs(timed, batching.capped(longest, caps.tokens), caps.seconds):
            if run is not None:
                rows, length, seconds = run
                self.most_rows[length] = rows
                self.pace.measured(rows * length, seconds)
            yield

    def _seconds(self, ones: NDArray[np.int64]) -> float:
        """Seconds that one run takes."""
        started = time.perf_counter()
        self.graph.score(ones, np.zeros_like(ones), ones)
        return time.perf_counter() - started


Run = tuple[int, int, float]
"""Rows, length, and the seconds that a run of this shape takes."""
Timed = Callable[[int, int], float]
"""Runs a graph on so many rows of that length, and returns the seconds that it took. Raises what the graph raises."""


def first_runs(timed: Timed, most: Mapping[int, int], seconds: float) -> Iterator[Run | None]:
    """Run a graph in ever larger shapes: for each length one row, then more rows while the runs are quick and memory suffices.

    Args:
        timed: runs the graph.
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
                taken = yield from _again(timed, measured_rows, length, taken, seconds * measured_rows / rows)
            if taken * rows / measured_rows > seconds:
                break
            usual = TOLERANCE * pace * rows * length
            try:
                taken = timed(rows, length)
                if taken >= min(usual, seconds):
                    taken = yield from _again(timed, rows, length, taken, seconds)
            except batching.BatchTooLargeError as error:
                if rows == 1:
                    raise
                log.warning("batches of %d tokens have fewer than %d rows, for want of memory: %s", length, rows, error)
                break
            measured_rows, pace = rows, taken / (rows * length)
            if rows == 1 or taken <= seconds:
                yield rows, length, taken


def _again(timed: Timed, rows: int, length: int, best: float, limit: float) -> Generator[None, None, float]:
    """Least seconds of `best` and up to TRIES runs, until one is within the limit or agrees with the best. Yields before each."""
    for _ in range(TRIES):
        yield
        taken = timed(rows, length)
        decided = taken <= limit or taken >= ALIKE * best
        best = min(best, taken)
        if decided:
            break
    return best


def settle(outcome: "Future[T]", work: Callable[[], T]) -> None:
    """Make a call; the future gets what it returns or raises."""
    try:
        outcome.set_result(work())
    except BaseException as error:
        outcome.set_exception(error)
    finally:
        del outcome, work  # the error's traceback refers back to this frame, which would keep the batch in memory


class Device:
    """Makes calls one after the other, in the order in which they come, on a thread that starts with the first.

    A call that raises something that is not an Exception ends the thread. The process does not wait for it when it ends: a device
    may hang.

    Args:
        finished: notified whenever a call is over.

    Attributes:
        dead: whether the thread has ended.
    """

    def __init__(self, finished: threading.Condition) -> None:
        self._finished, self._changed = finished, threading.Condition()
        self._waiting: deque[tuple[Future[Any], Callable[[], Any]]] = deque()
        self._closed = self.dead = False
        self._thread = threading.Thread(target=self._run, name="device", daemon=True)

    def begin(self, work: Callable[[], T]) -> "Future[T]":
        """Queue a call behind those that were queued before."""
        outcome: Future[T] = Future()
        with self._changed:
            self._waiting.append((outcome, work))
            self._changed.notify()
        if self._thread.ident is None:
            self._thread.start()
        return outcome

    def wait(self, outcome: "Future[Any]") -> None:
        """Wait until this call is over."""
        with self._finished:
            while not outcome.done():
                self._finished.wait()

    def do(self, work: Callable[[], T]) -> T:
        """Make this call on the thread and wait for its result. Raises what the call raises."""
        outcome = self.begin(work)
        self.wait(outcome)
        return outcome.result()

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
            outcome, work = self._waiting.popleft()
        settle(outcome, work)
        error = outcome.exception()
        with self._finished:
            self._finished.notify()
        return error is None or isinstance(error, Exception)
