"""From lists to shards: each distinct document once."""

from pathlib import Path
from typing import Any

import pytest

from bulk import intake
from bulk.errors import BulkError
from bulk.intake import take_in
from bulk.options import Options
from bulk.tables import map_table
from bulk.work import Intake, Layout
from tests.bulk.jobs import layout, write_lines


def options(tmp_path: Path, rows: list[Any], **more: Any) -> Options:
    return Options(lists=(write_lines(tmp_path / "lists.jsonl", rows),), bundle=tmp_path, out=tmp_path, **more)


def documents(found: Layout, counts: list[int]) -> list[tuple[str, str]]:
    tables = [map_table(found.documents(shard)).to_pylist() for shard in range(len(counts))]
    assert [len(table) for table in tables] == counts
    return [(row["title"], row["text"]) for table in tables for row in table]


def test_a_text_that_many_queries_meet_is_kept_once(tmp_path: Path) -> None:
    tea, ice = {"docid": "t", "text": "Tea is hot."}, {"docid": "i", "text": "Ice is cold.", "score": 1}
    rows = [
        {"qid": "q1", "query": "tea", "documents": [tea, ice]},
        {"qid": "q2", "query": "ice", "documents": [ice, tea, {"docid": "other", "text": "Tea is hot."}]},
        {"qid": "q3", "query": "hot", "documents": [tea | {"title": "Drinks"}]},
    ]
    where = layout(tmp_path)
    found = take_in(options(tmp_path, rows, shard_pairs=4), where)
    assert found == Intake([2, 4], [3], 3), "a list is never cut: 2 pairs, and 3 more would be 5"
    assert documents(where, found.documents) == [("", "Tea is hot."), ("", "Ice is cold."), ("Drinks", "Tea is hot.")]
    first, second = (map_table(where.lists(shard)).to_pylist() for shard in range(2))
    assert first[0]["documents"] == [{"docid": "t", "number": 0, "score": None}, {"docid": "i", "number": 1, "score": 1.0}]
    assert [[(one["docid"], one["number"]) for one in row["documents"]] for row in second] == [
        [("i", 1), ("t", 0), ("other", 0)],
        [("t", 2)],
    ]
    assert Intake.read(where.work) == found


def test_a_run_takes_its_texts_from_the_collection(tmp_path: Path) -> None:
    write_lines(tmp_path / "corpus.jsonl", [{"_id": "z", "text": "unasked"}, {"_id": "b", "text": "y"}, {"_id": "a", "text": "x"}])
    write_lines(tmp_path / "queries.jsonl", [{"_id": "q1", "text": "tea"}])
    (tmp_path / "run.trec").write_text("q1 Q0 a 1 2 t\nq1 Q0 b 2 3 t\n", encoding="utf-8")
    where = layout(tmp_path)
    found = take_in(Options(run=tmp_path / "run.trec", collection=tmp_path, bundle=tmp_path, out=tmp_path), where)
    assert documents(where, found.documents) == [("", "y"), ("", "x")]
    assert map_table(where.lists(0)).to_pylist() == [
        {
            "qid": "q1",
            "query": "tea",
            "documents": [{"docid": "b", "number": 0, "score": 3.0}, {"docid": "a", "number": 1, "score": 2.0}],
        }
    ]


def test_documents_are_cut_into_shards_by_number_and_by_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "DOCUMENTS_PER_SHARD", 2)
    monkeypatch.setattr(intake, "CHARS_PER_SHARD", 100)
    texts = ["a", "b", "c", "d" * 100, "e"]
    where = layout(tmp_path)
    found = take_in(options(tmp_path, [{"query": "tea", "documents": texts}]), where)
    assert found.documents == [2, 2, 1]
    assert [text for _, text in documents(where, found.documents)] == texts


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([{"qid": "q1", "documents": ["x"]}], "there is no text of query 'q1': give it as 'query'"),
        ([{"qid": "q1", "query": "tea", "documents": [{"docid": "a"}]}], "there is no text of document 'a' of query 'q1'"),
        ([], "names no candidate list"),
    ],
)
def test_a_missing_text_is_an_error(tmp_path: Path, rows: list[Any], said: str) -> None:
    where = layout(tmp_path)
    with pytest.raises(BulkError, match=said):
        take_in(options(tmp_path, rows), where)
    write_lines(tmp_path / "corpus.jsonl", [])
    write_lines(tmp_path / "queries.jsonl", [])
    with pytest.raises(BulkError, match=said):
        take_in(options(tmp_path, rows, collection=tmp_path), where)
    assert Intake.read(where.work) is None


def test_the_intake_is_reported(tmp_path: Path) -> None:
    told: list[int] = []
    take_in(options(tmp_path, [{"query": q, "documents": ["x", "y"]} for q in "ab"]), layout(tmp_path), told.append)
    assert told == [2, 2]
