"""Records and their tables, worked by hand: a difference of 1 and 0.5 in two queries is t = 3 with one degree of freedom."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lab.records import Record, read_record, read_records, record_evaluation, record_path, write_record
from lab.tables import compare_pairs, comparisons_table, difference_interval
from training.data.types import FileError
from training.evaluate.evaluate import Evaluation
from training.evaluate.resources import Memory

VALUES = {"RR@10": {"a": 1.0, "b": 1 / 3}, "nDCG@10": {"a": 1.0, "b": 0.5}}


@pytest.fixture
def evaluation() -> Evaluation:
    """Queries of 4 and 2 documents in 0.4 and 0.1 seconds."""
    run = {"a": {"x": 1.0}, "b": {"x": 1.0}}
    return Evaluation("keyb", run, VALUES, [0.4, 0.1], [4, 2], memory=Memory(rss_mb=900.0))


def make(system: str = "keyb", collection: str = "toy", **changes: Any) -> Record:
    return Record(
        **{"system": system, "collection": collection, "split": "test", "queries": ["a"], "values": {"RR@10": [0.5]}} | changes
    )


def test_what_an_evaluation_leaves(evaluation: Evaluation) -> None:
    record = record_evaluation(evaluation, "toy", "test", steps=700, training_seconds=60.0, details={"budget": 128})
    assert record.system == "keyb"
    assert record.queries == ["a", "b"]
    assert record.by_query == {"RR@10": {"a": 1.0, "b": 0.333333}, "nDCG@10": VALUES["nDCG@10"]}
    assert record.means == pytest.approx({"RR@10": 2 / 3, "nDCG@10": 0.75}, abs=1e-6)
    assert record.ms_per_document == pytest.approx((100 + 50) / 2)
    assert (record.peak_mb, record.steps, record.training_seconds, record.seeds) == (900.0, 700, 60.0, 1)
    assert record_evaluation(evaluation, "toy", "test", system="KeyB(vBERT)").system == "KeyB(vBERT)"


def test_records_read_back(evaluation: Evaluation, tmp_path: Path) -> None:
    record = record_evaluation(evaluation, "toy", "test", steps=700, details={"é": [1]})
    path = write_record(record, tmp_path)
    assert path == record_path(tmp_path, "toy", "keyb") == tmp_path / "toy" / "keyb.json"
    assert read_record(path) == record
    assert list(tmp_path.rglob("*.part")) == []
    assert json.loads(path.read_text(encoding="utf-8"))["queries"] == ["a", "b"]


def test_a_record_is_replaced_by_the_next_of_its_system(tmp_path: Path) -> None:
    write_record(make(steps=1), tmp_path)
    assert read_record(write_record(make(steps=2), tmp_path)).steps == 2


def test_names_are_made_fit_for_files(tmp_path: Path) -> None:
    path = write_record(make("KeyB(PARADE5) BinB/2", "../squad far"), tmp_path)
    assert path == tmp_path / "squad-far" / "KeyB-PARADE5-BinB-2.json"
    with pytest.raises(ValueError, match=r"holds the record of 'KeyB\(PARADE5\) BinB/2'"):
        write_record(make("KeyB[PARADE5] BinB 2", "../squad far"), tmp_path)


def test_all_records_of_a_directory(tmp_path: Path) -> None:
    for system, collection in (("one", "a"), ("two", "a"), ("one", "b")):
        write_record(make(system, collection), tmp_path)
    assert [(r.collection, r.system) for r in read_records(tmp_path)] == [("a", "one"), ("a", "two"), ("b", "one")]
    assert read_records(tmp_path / "nowhere") == []


@pytest.mark.parametrize("content", [b"", b'{"system": "keyb"', b'{"system": "keyb"}', b"\xff\xfe", b"[]"])
def test_damaged_records(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "keyb.json"
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"keyb\.json: no record of a measurement, remove it to measure again") as caught:
        read_record(path)
    assert "\n" not in str(caught.value)


def test_values_of_other_queries_make_no_record() -> None:
    with pytest.raises(ValidationError, match="RR@10 has 2 values for 1 queries"):
        make(values={"RR@10": [0.5, 1.0]})


P = 1 - 2 / math.pi * math.atan(3)
GOOD, BAD = {"a": 1.0, "b": 0.5}, {"a": 0.0, "b": 0.0}


def measured(system: str, collection: str = "toy", values: dict[str, float] = GOOD, **costs: Any) -> Record:
    by_measure = {measure: list(values.values()) for measure in ("RR@10", "nDCG@10")}
    return Record(system=system, collection=collection, split="test", queries=list(values), values=by_measure, **costs)


def test_claims_by_hand() -> None:
    """Two pairs, one of them on two collections: a family of three."""
    records = [
        measured("BinB"),
        measured("BM25", values=BAD),
        measured("cascade"),
        measured("BinB", "sea", BAD),
        measured("BM25", "sea"),
    ]
    found = compare_pairs(records, [("BinB", "BM25"), ("cascade", "BinB")], "RR@10")
    assert [(c.first, c.second, c.collection, c.queries, c.difference, c.p) for c in found] == [
        ("BinB", "BM25", "toy", 2, 0.75, pytest.approx(3 * P)),
        ("BinB", "BM25", "sea", 2, -0.75, pytest.approx(3 * P)),
        ("cascade", "BinB", "toy", 2, 0.0, 1.0),
    ]
    # differences 0.5 and 1: a standard error of 0.25, and t of one degree of freedom is 12.706 at 97.5%
    assert comparisons_table(found).splitlines()[2:] == [
        f"| BinB | BM25 | toy | RR@10 | 2 | +0.7500 | -2.427 to +3.927 | {3 * P:.2g} | undecided |",
        f"| BinB | BM25 | sea | RR@10 | 2 | -0.7500 | -3.927 to +2.427 | {3 * P:.2g} | undecided |",
        "| cascade | BinB | toy | RR@10 | 2 | +0.0000 | +0.000 to +0.000 | 1 | undecided |",
    ]


def test_verdicts() -> None:
    """The same difference in three queries cannot be luck: p = 0."""
    better, worse = {"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 0.0, "b": 0.0, "c": 0.0}
    records = [measured("x", values=better), measured("y", values=worse)]
    assert [c.verdict for c in compare_pairs(records, [("x", "y"), ("y", "x")], "RR@10")] == ["better", "worse"]


def test_pairs_that_were_not_measured_together() -> None:
    with pytest.raises(ValueError, match="'BinB' and 'BM25' were not both measured on any collection"):
        compare_pairs([measured("BinB"), measured("BM25", "sea")], [("BinB", "BM25")], "RR@10")


@pytest.mark.parametrize(
    ("records", "measure", "said"),
    [
        ([measured("x"), measured("y", values={"a": 1.0})], "RR@10", "'y' and 'x' were not both measured by RR@10 on the same"),
        ([measured("x"), measured("y")], "AP", "were not both measured by AP"),
    ],
)
def test_systems_that_cannot_be_compared(records: list[Record], measure: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        compare_pairs(records, [("x", "y")], measure)


def test_the_interval_of_a_difference_by_hand() -> None:
    # differences 1, 2, 3: mean 2, standard error 1 / sqrt(3), and t of 2 degrees of freedom is 4.303 at 97.5%
    low, high = difference_interval({"a": 2.0, "b": 3.0, "c": 3.0}, {"a": 1.0, "b": 1.0})
    assert low == pytest.approx(2 - 4.302653 / 3**0.5, abs=1e-5)
    assert high == pytest.approx(2 + 4.302653 / 3**0.5, abs=1e-5)
    with pytest.raises(ValueError, match="two queries"):
        difference_interval({"a": 1.0}, {"a": 0.0})
