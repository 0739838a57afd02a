"""A graph's first runs, so that no request pays for them; they find out how many rows a batch may have.

A batch that has begun holds up every newcomer, so it should be short. On a CPU a few rows are as fast for each token as many; on a
GPU even the largest batch is short.
"""

import logging
from collections.abc import Generator, Iterator, Mapping

import numpy as np

from keyblock.runtime.batching import BatchTooLargeError, Scorer, row_counts
from service.machine import Clock

log = logging.getLogger(__name__)
ALIKE = 0.85  # of what another run took, or more: both say the same
TRIES = 2  # on a machine that does other work as well, one slow run says little
USUAL = 1.3  # times what its tokens take in the shape before: a run of less has cost nothing else, and is not repeated


Run = tuple[int, int, float]
"""Rows, length, and the seconds that they take."""


def first_runs(graph: Scorer, most: Mapping[int, int], seconds: float, clock: Clock) -> Iterator[Run | None]:
    """Run a graph in ever larger shapes: of each length one row, then more, as long as these are quick and memory does.

    Args:
        graph: what is run.
        most: rows that a batch may have at most, by length.
        seconds: that a batch of several rows may take.
        clock: measures.

    Yields:
        After each run, so that other work may come between: a shape that may be used from now on, rows ascending, or None.

    Raises what the graph raises, of BatchTooLargeError only that for a single row.
    """
    pace = 0.0  # seconds a token, of the last shape
    for length in sorted(most):
        taken, ran, usual = 0.0, 1, 0.0
        for rows in row_counts(most[length]):
            expected = taken * rows / ran
            if expected > seconds and not (taken < usual and expected > USUAL * seconds):  # measure again before noise decides
                taken = yield from _again(graph, ran, length, taken, seconds * ran / rows, clock)
            if taken * rows / ran > seconds:
                break
            usual = USUAL * pace * rows * length
            try:
                taken = yield from _timed(graph, rows, length, seconds, usual, clock)
            except BatchTooLargeError as error:
                if rows == 1:
                    raise
                log.warning("batches of %d tokens have fewer than %d rows, for want of memory: %s", length, rows, error)
                break
            ran, pace = rows, taken / (rows * length)
            if rows == 1 or taken <= seconds:
                yield rows, length, taken


def _timed(graph: Scorer, rows: int, length: int, enough: float, usual: float, clock: Clock) -> Generator[None, None, float]:
    """What a run takes: the first where that is usual, else the least of it and a few more, see `_again`. Yields between."""
    first = _run(graph, rows, length, clock)
    return first if first < min(usual, enough) else (yield from _again(graph, rows, length, first, enough, clock))


def _again(graph: Scorer, rows: int, length: int, best: float, enough: float, clock: Clock) -> Generator[None, None, float]:
    """The least of `best` and a few more runs, until one is quick enough, or as long as the best before. Yields before each."""
    for _ in range(TRIES):
        yield
        taken = _run(graph, rows, length, clock)
        over = taken <= enough or taken >= ALIKE * best
        best = min(best, taken)
        if over:
            break
    return best


def _run(graph: Scorer, rows: int, length: int, clock: Clock) -> float:
    """What it takes."""
    ones = np.ones((rows, length), dtype=np.int64)
    types = np.zeros_like(ones)
    started = clock()
    graph.score(ones, types, ones)
    return clock() - started
