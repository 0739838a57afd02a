"""Records on disk."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.performance.record import RecordError, cpu_name, merged, read_record, run_of, write_record


def test_a_record_comes_back(tmp_path: Path, record: dict[str, Any]) -> None:
    path = tmp_path / "deep" / "record.json"
    write_record(path, record)
    assert read_record(path) == record
    assert [file.name for file in path.parent.iterdir()] == ["record.json"]


def test_where_nothing_was_measured_the_record_is_empty(tmp_path: Path) -> None:
    assert read_record(tmp_path / "none.json")["parts"] == {}


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_a_damaged_record_is_one_clear_error(tmp_path: Path, content: str) -> None:
    path = tmp_path / "record.json"
    path.write_text(content, encoding="utf-8")
    with pytest.raises(RecordError, match="remove it to measure again"):
        read_record(path)


def test_a_part_measured_again_replaces_its_older_self(record: dict[str, Any]) -> None:
    again = {"machine": record["machine"], "versions": {"KeyBlock": {}}, "parts": {"start": {"seconds": 1}}}
    both = merged(record, again)
    assert both["parts"]["start"] == {"seconds": 1}
    assert both["parts"]["memory"] == record["parts"]["memory"]
    assert set(both["versions"]) == {"onnx", "KeyBlock"}


def test_parts_of_another_machine_do_not_stay(record: dict[str, Any]) -> None:
    other = {"machine": {"cpu": "Another"}, "versions": {}, "parts": {"start": {}}}
    assert merged(record, other) == other


def test_the_name_of_the_cpu(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc" / "cpuinfo").write_text("processor : 0\nmodel name\t: Some CPU @ 2 GHz\n", encoding="utf-8")
    assert cpu_name(tmp_path) == "Some CPU @ 2 GHz"


def test_a_run_says_its_command(tmp_path: Path) -> None:
    run = run_of("make bench", "quick", "qmsum", tmp_path)
    assert (run["command"], run["sizes"], run["texts"], run["commit"]) == ("make bench", "quick", "qmsum", "")
