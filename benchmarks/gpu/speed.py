"""Measures the speed of a shape by budget and batch, in each way, and its operations a second (for the limit see `device`)."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.engines import GPU_WAYS, Engine, Way, Work, open_engine, random_batch, ways_of
from benchmarks.gpu.record import Row
from benchmarks.gpu.shapes import Shape
from keyblock.runtime.session import one_line

WARM_RUNS = 3  # runs of each batch before it is timed: the second run of a captured graph records it
MOST_RUNS = 200
TABLE = "speed"
Cell = tuple[int, int]
"""Budget and batch."""


def measure(bench: Bench, shape: Shape, ways: Sequence[Way] = GPU_WAYS, cells: Sequence[Cell] | None = None) -> Iterator[Row]:
    """A row for each way, budget and batch. If a library refuses a way or a batch, its single row has the message."""
    cells = cells or list(product(bench.sizes.budgets, bench.sizes.batches))
    for way in ways_of(bench.provider, ways):
        common = {"table": TABLE, "shape": shape.name, "way": way.title, "precision": way.precision}
        try:
            engine = open_engine(bench, shape, way)
        except Exception as error:  # each library has its own exceptions
            yield common | {"refused": one_line(error)}
            continue
        for budget, batch in cells:
            yield common | {"budget": budget, "batch": batch} | _cell(bench, shape, engine, (budget, batch))
        del engine
        bench.forget()


def _cell(bench: Bench, shape: Shape, engine: Engine, cell: Cell) -> Row:
    budget, batch = cell
    try:
        found = timed(engine(random_batch(batch, budget, shape.vocabulary)), bench.sizes.seconds)
    except Exception as error:  # mostly out of memory
        return {"refused": one_line(error)}
    sequences = found["rate"] * batch
    return {**found, "sequences": sequences, "achieved": sequences * shape.encoder.operations(budget)}


def timed(work: Work, seconds: float, clock: Callable[[], float] = time.perf_counter) -> dict[str, float]:
    """Seconds from start to answer (median and 90th percentile), and batches a second when none waits for the one before.

    Args:
        work: the batch.
        seconds: time for both measurements together.
        clock: returns seconds.
    """
    for _ in range(WARM_RUNS):
        work.start()
        work.answer()
    latencies: list[float] = []
    until = clock() + seconds / 2
    while len(latencies) < WARM_RUNS or (clock() < until and len(latencies) < MOST_RUNS):
        started = clock()
        work.start()
        work.answer()
        latencies.append(clock() - started)
    median = statistics.median(latencies)
    runs = min(MOST_RUNS, max(WARM_RUNS, round(seconds / 2 / max(median, 1e-9))))
    started = clock()
    for _ in range(runs):
        work.start()
    work.answer()
    worst = sorted(latencies)[-1 - len(latencies) // 10]
    return {"latency": median, "latency_p90": worst, "rate": runs / (clock() - started)}
