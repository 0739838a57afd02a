"""A part's record while it grows: whole, cut off by the clock, and after an error."""

from collections.abc import Iterator
from pathlib import Path

from benchmarks.gpu.bench import Bench
from benchmarks.gpu.plan import PARTS
from benchmarks.gpu.record import PartRecord, Row, State, read
from benchmarks.gpu.work import measure_part, measures
from tests.benchmarks.gpu.conftest import SETUP


def three_rows(_: Bench) -> Iterator[Row]:
    yield from ({"table": "speed", "way": name} for name in "abc")


def fails_after_one(_: Bench) -> Iterator[Row]:
    yield {"table": "speed", "way": "a"}
    raise RuntimeError("CUDA error: an illegal memory access\nwas encountered")


def measured(bench: Bench, records: Path, measure: object, seconds: float) -> PartRecord:
    """On a clock that goes on by a second each time it is asked."""
    ticks = iter(range(100))
    record = measure_part(bench, "parity", SETUP, records, seconds, measure, lambda: float(next(ticks)))  # type: ignore[arg-type]
    assert read(records, "parity") == record
    return record


def test_a_part_that_ends_is_measured(bench: Bench, tmp_path: Path) -> None:
    record = measured(bench, tmp_path, three_rows, 60)
    assert (record["state"], record["why"]) == (State.MEASURED, "")
    assert [row["way"] for row in record["rows"]] == ["a", "b", "c"]


def test_time_cuts_it_off_and_its_rows_stay(bench: Bench, tmp_path: Path) -> None:
    """Two readings a row: after the second row, the clock is four seconds on."""
    record = measured(bench, tmp_path, three_rows, 3)
    assert (record["state"], record["why"]) == (State.CUT_OFF, "it took more than 3 s")
    assert [row["way"] for row in record["rows"]] == ["a", "b"]


def test_an_error_is_one_line_and_the_rows_before_it_stay(bench: Bench, tmp_path: Path) -> None:
    record = measured(bench, tmp_path, fails_after_one, 60)
    assert record["state"] == State.FAILED
    assert record["why"] == "RuntimeError: CUDA error: an illegal memory access was encountered"
    assert len(record["rows"]) == 1


def test_a_process_that_is_killed_leaves_what_it_had(bench: Bench, tmp_path: Path) -> None:
    """What stands in the file when the second row is being measured: it says that it is not whole."""
    seen = []

    def looks(_: Bench) -> Iterator[Row]:
        yield {"table": "speed", "way": "a"}
        seen.append(read(tmp_path, "parity"))
        yield {"table": "speed", "way": "b"}

    measured(bench, tmp_path, looks, 60)
    assert (seen[0]["state"], len(seen[0]["rows"])) == (State.CUT_OFF, 1)


def test_every_part_has_something_that_measures_it() -> None:
    assert all(callable(measures(part.name)) for part in PARTS)
