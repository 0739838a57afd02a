"""A graph's first runs: no request pays for them, and they measure how many rows a batch may have.

A new request waits for the running batch, so a batch should be short. On a CPU, a token takes as long in a batch of few rows as in
a batch of many; on a GPU even the largest batch is short.
"""

import logging
from collections.abc import Generator, Iterator, Mapping

import numpy as np

from keyblock.runtime.batching import BatchTooLargeError, Scorer, row_counts
from service.machine import Clock

log = logging.getLogger(__name__)
ALIKE = 0.85  # if a run takes at least this share of another run's time, the two runs agree
TRIES = 2  # repeated runs: on a machine that does other work as well, one slow run says little
TOLERANCE = 1.3  # times the time expected at the last shape's pace: a faster run paid for no preparation and is not repeated


Run = tuple[int, int, float]
"""Rows, length, and the seconds that a run of this shape takes."""


def first_runs(graph: Scorer, most: Mapping[int, int], seconds: float, clock: Clock) -> Iterator[Run | None]:
    """Run a graph in ever larger shapes: for each length one row, then more rows while the runs are quick and memory suffices.

    Args:
        graph: the graph to run.
        most: most rows of a batch, by length.
        seconds: seconds that a batch of several rows may take.
        clock: measures the runs.

    Yields:
        After each run, so that other work may run in between: a shape that may be used from now on (rows ascend), or None.

    Raises what the graph raises, but BatchTooLargeError only if a single row is too large.
    """
    pace = 0.0  # seconds per token in the last shape
    for length in sorted(most):
        taken, measured_rows, usual = 0.0, 1, 0.0
        for rows in row_counts(most[length]):
            expected = taken * rows / measured_rows
            clear = taken < usual and expected > TOLERANCE * seconds  # else noise could be the reason: measure again
            if expected > seconds and not clear:
                taken = yield from _again(graph, measured_rows, length, taken, seconds * measured_rows / rows, clock)
            if taken * rows / measured_rows > seconds:
                break
            usual = TOLERANCE * pace * rows * length
            try:
                taken = yield from _timed(graph, rows, length, seconds, usual, clock)
            except BatchTooLargeError as error:
                if rows == 1:
                    raise
                log.warning("batches of %d tokens have fewer than %d rows, for want of memory: %s", length, rows, error)
                break
            measured_rows, pace = rows, taken / (rows * length)
            if rows == 1 or taken <= seconds:
                yield rows, length, taken


def _timed(graph: Scorer, rows: int, length: int, limit: float, expected: float, clock: Clock) -> Generator[None, None, float]:
    """Seconds of a run: of the first if it is as quick as expected, else the least of several, see `_again`. Yields in between."""
    first = _run(graph, rows, length, clock)
    return first if first < min(expected, limit) else (yield from _again(graph, rows, length, first, limit, clock))


def _again(graph: Scorer, rows: int, length: int, best: float, limit: float, clock: Clock) -> Generator[None, None, float]:
    """Least seconds of `best` and up to TRIES runs, until one is within the limit or agrees with the best. Yields before each."""
    for _ in range(TRIES):
        yield
        taken = _run(graph, rows, length, clock)
        decided = taken <= limit or taken >= ALIKE * best
        best = min(best, taken)
        if decided:
            break
    return best


def _run(graph: Scorer, rows: int, length: int, clock: Clock) -> float:
    """Seconds that one run takes."""
    ones = np.ones((rows, length), dtype=np.int64)
    types = np.zeros_like(ones)
    started = clock()
    graph.score(ones, types, ones)
    return clock() - started
