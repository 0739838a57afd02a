"""Records: what an evaluation leaves, written and read back, and damage said in one line."""

import json
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from lab.records import Record, read_record, read_records, record_evaluation, record_path, write_record
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


def test_all_records_or_those_of_some_collections(tmp_path: Path) -> None:
    for system, collection in (("one", "a"), ("two", "a"), ("one", "b"), ("one", "c")):
        write_record(make(system, collection), tmp_path)
    assert [(r.collection, r.system) for r in read_records(tmp_path)] == [("a", "one"), ("a", "two"), ("b", "one"), ("c", "one")]
    assert [(r.collection, r.system) for r in read_records(tmp_path, ["c", "a"])] == [("c", "one"), ("a", "one"), ("a", "two")]
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
