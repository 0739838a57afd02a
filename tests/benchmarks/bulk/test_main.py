"""The command from a record to tables, without measuring."""

import json
from pathlib import Path

import pytest

from benchmarks.bulk import __main__ as command
from benchmarks.bulk.beside import COMMANDS, SERVICE
from benchmarks.bulk.tables import STAGES, measured

RECORD = {
    "machine": {"cpu": "a CPU"},
    "run": {"command": "python -m benchmarks.bulk", "date": "2026-01-01", "load": 0.1, "rounds": 3},
    "stages": dict.fromkeys(STAGES, 200.0),
    "beside": {
        "pairs": 3000,
        "rates": {name: {"wall": 150.0, "cpu": 300.0} for name in COMMANDS} | {SERVICE: {"wall": 100.0, "cpu": 100.0}},
        "start_seconds": dict.fromkeys(COMMANDS, 4.0),
        "differences": dict.fromkeys(COMMANDS, 2e-6),
        "resident": {"1 worker": {"driver": 226}},
    },
}


def test_the_tables_compare_with_the_service() -> None:
    text = measured(RECORD)
    assert "| service, 1 thread | 100.0 | 1.00 | 100.0 | 1.00 |  |" in text
    assert "| 2 workers | 150.0 | 1.50 | 300.0 | 3.00 | 2e-06 |" in text
    assert "| Ray, 2 workers | 150.0 | 1.50 |  |  | 2e-06 |" in text
    assert "| prepare | 200 documents a CPU second |" in text
    assert "1 worker: driver 226." in text


def test_reckoning_reads_a_record_and_measures_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path := tmp_path / "bulk.json").write_text(json.dumps(RECORD))
    job = ["--pairs", "2000000", "--documents", "20000", "--core-hour", "0.36"]
    assert command.main(["--reckon", "--record", str(path), *job]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("2,000,000 pairs of 20,000 documents, 2,000 pairs a shard, on Ray; 0.36 a core-hour")
    # taking in 10,000 s; preparing 20,000 / 200 / 10 + 2 s; 100 turns of 10 s + 2 s; 11,014 s of ten cores at 0.0001 a second
    assert "| 10 | 166.7 | 0.2 | 16.7 | 183.6 | 30.6 | 11.01 |" in printed


@pytest.mark.parametrize("given", [["--pairs", "0"], ["--documents", "-5"], ["--core-hour", "nan"], ["--file-system", "inf"]])
def test_a_job_of_impossible_numbers_is_refused(given: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["--reckon", *given])
    assert f"{given[0]} must be " in capsys.readouterr().err


def test_without_a_record_it_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["--reckon", "--record", str(tmp_path / "none.json")]) == 1
    assert capsys.readouterr().err.endswith("none.json is not there: measure first, with --data\n")


def test_the_page_has_places_for_the_tables() -> None:
    page = command.PAGE.read_text(encoding="utf-8")
    assert all(page.count(mark) == 1 for mark in command.MARKS.values())
