"""Measures one part in its own process, and writes a record that grows row by row."""

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.record import PartRecord, Row, Setup, State, new_record, write
from keyblock.runtime.session import one_line

Measure = Callable[[Bench], Iterator[Row]]
COMPILED_CELLS = ((128, 32), (128, 128), (512, 32), (512, 128))  # each needs its own compilation


def measures(part: str) -> Measure:
    """The function that measures a part. Its module is imported only here, so that a part needs no other part's packages."""
    if part == "device":
        from benchmarks.gpu import device

        return device.measure
    if part == "parity":
        from benchmarks.gpu import parity

        return parity.measure
    if part == "service":
        from benchmarks.gpu import service

        return service.measure
    if part == "servers":
        from benchmarks.gpu import servers

        return servers.measure
    return _speed(part)


def _speed(part: str) -> Measure:
    from benchmarks.gpu import engines, speed
    from benchmarks.gpu.shapes import shape_of

    if part == "compiled":
        return lambda bench: (
            row
            for name in ("minilm-l6", "bert-base")
            for row in speed.measure(bench, shape_of(name), engines.COMPILED_WAYS, COMPILED_CELLS)
        )
    if part == "tensorrt":
        return lambda bench: (
            row for name in ("minilm-l6", "bert-base") for row in speed.measure(bench, shape_of(name), engines.TENSORRT_WAYS)
        )
    return partial(speed.measure, shape=shape_of(part))


def measure_part(
    bench: Bench,
    part: str,
    setup: Setup,
    records: Path,
    seconds: float,
    measure: Measure | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> PartRecord:
    """Measure a part until it is done or the time is up.

    Args:
        bench: the run's sizes, directories and device.
        part: name of the part.
        setup: set-up for the record.
        records: directory of the record, which is rewritten after each row.
        seconds: time after which no further row is measured.
        measure: yields the rows; by default the function of the part's name.
        clock: returns seconds.
    """
    record = new_record(part, setup, State.CUT_OFF, "its process ended before it was done")
    write(records, record)
    started = clock()
    try:
        for row in (measure or measures(part))(bench):
            record["rows"].append(row)
            print(f"{part}: {row_text(row)}", flush=True)
            write(records, record | {"seconds": clock() - started})
            if clock() - started > seconds:
                record["why"] = f"it took more than {seconds:.0f} s"
                break
        else:
            record["state"], record["why"] = State.MEASURED, ""
    except Exception as error:  # any exception of a library: other parts continue
        record["state"], record["why"] = State.FAILED, f"{type(error).__name__}: {one_line(error)}"
    record["seconds"] = clock() - started
    write(records, record)
    return record


def row_text(row: Mapping[str, object]) -> str:
    """A row for the log."""
    return ", ".join(f"{key} {value:.4g}" if isinstance(value, float) else f"{key} {value}" for key, value in row.items())
