"""The tables of the field from records whose right answer a reader can see."""

from pathlib import Path

import pytest

from benchmarks.field.tables import field_table, findings_table, gain_table, known_records, p_values
from training.evaluation.records import Record, write_record

QUERIES = [f"q{number}" for number in range(6)]


def record(system: str, values: list[float], collection: str = "squad-articles") -> Record:
    return Record(
        system=system,
        collection=collection,
        split="test",
        steps=60,
        training_seconds=120.0,
        queries=QUERIES,
        values={"RR@10": values, "nDCG@10": values},
    )


LOW, HIGH = [0.1, 0.2, 0.1, 0.2, 0.1, 0.3], [0.9, 1.0, 0.8, 1.0, 0.9, 1.0]


def test_a_mark_says_from_which_reference_a_system_differs() -> None:
    """MaxP and PARADE are alike and far above FirstP: both are marked f, neither m; FirstP is marked m."""
    records = [record("firstp", LOW), record("maxp", HIGH), record("parade-attention", [*HIGH[:-1], 0.9])]
    rows = {row.split(" | ")[0].strip("| "): row for row in field_table(records, {"maxp": 12.34}).splitlines()}
    assert "0.167 m |" in rows["FirstP"]
    assert "0.933 f |" in rows["MaxP"]
    assert "12.3 | 2 | 1 |" in rows["MaxP"]
    assert "0.917 f |" in rows["PARADE Attn"]


def test_p_values_are_corrected_within_a_setting() -> None:
    found = p_values("firstp", [record("firstp", LOW), record("maxp", HIGH), record("avgp", LOW)])
    assert set(found) == {"maxp", "avgp"}
    assert found["avgp"] == 1.0
    assert found["maxp"] < 0.01


def test_without_a_reference_there_are_no_marks() -> None:
    assert p_values("firstp", [record("maxp", HIGH)]) == {}


def test_seeds_are_averaged_by_query(tmp_path: Path) -> None:
    write_record(record("maxp", HIGH), tmp_path / "seed-0")
    write_record(record("maxp", LOW), tmp_path / "seed-1")
    write_record(record("firstp", LOW), tmp_path / "seed-0")
    firstp, maxp = known_records(tmp_path)
    assert (firstp.system, firstp.seeds) == ("firstp", 1)
    assert (maxp.system, maxp.seeds) == ("maxp", 2)
    assert maxp.values["RR@10"] == pytest.approx([0.5, 0.6, 0.45, 0.6, 0.5, 0.65])


def test_what_fine_tuning_adds() -> None:
    before = record("longp", LOW, "squad-far, zero-shot")
    after = record("longp", HIGH, "squad-far, fine-tuned")
    (row,) = [line for line in gain_table([before, after]).splitlines() if "LongP" in line]
    assert row.startswith("| LongP | 0.167 | 0.933 | +0.767 | ")
    assert row.endswith(" |  |  |  |"), "neither MaxP nor a longer tuning was measured"
    longer = before.model_copy(update={"collection": "squad-far, fine-tuned for 300 steps"})
    assert gain_table([before, after, longer]).rstrip(" |").endswith("0.167 | +0.000")


def test_a_gain_is_compared_with_that_of_maxp() -> None:
    settings = ("squad-far, zero-shot", "squad-far, fine-tuned")
    records = [record("maxp", LOW, name) for name in settings]
    records += [record("longp", values, name) for values, name in zip((LOW, HIGH), settings, strict=True)]
    rows = {line.split(" | ")[0].strip("| "): line.split(" | ") for line in gain_table(records).splitlines()}
    assert rows["MaxP"][4:6] == ["1", ""], "its gain is nothing, and is not compared with itself"
    assert float(rows["LongP"][5]) < 0.05


def test_a_finding_needs_both_its_systems() -> None:
    assert findings_table([record("maxp", HIGH)]) == ""
    assert "better" in findings_table([record("maxp", HIGH), record("firstp", LOW)])
