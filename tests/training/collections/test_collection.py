"""Collections: what each part reads as, and how what is missing or damaged is said."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from training.data.collection import Collection, distinct_names
from training.data.files import open_text
from training.data.types import CollectionError, Document, FileError, Span


def test_parts_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "hand"
    (path / "splits").mkdir(parents=True)
    with open_text(path / "corpus.jsonl.gz", "w") as out:
        out.write('{"_id": "d1", "title": "T", "text": "one two"}\n{"_id": "d2", "title": null, "text": ""}\n')
        out.write('{"_id": "d3", "text": "no title", "url": "ignored"}\n')
    (path / "queries.jsonl").write_text('{"_id": "q1", "text": "one"}\n\n{"_id": "q2", "text": ""}\n', encoding="utf-8")
    (path / "qrels.tsv").write_text("q1\t0\td1\t1\nq1 0 d2 0\nq2\t0\td9\t2\n\n", encoding="utf-8")
    (path / "spans.jsonl").write_text('{"qid": "q1", "docid": "d1", "start": 4, "end": 7}\n', encoding="utf-8")
    (path / "splits/dev.txt").write_text("q2\n\n q1 \n", encoding="utf-8")
    (path / "run.dev.bm25.trec").write_text("q1 Q0 d2 1 1.5 x\nq1 Q0 d1 2 2.5 x\n", encoding="utf-8")
    collection = Collection(path)
    assert collection.name == "hand"
    assert list(collection.documents.values()) == [
        Document("d1", "T", "one two"),
        Document("d2", "", ""),
        Document("d3", "", "no title"),
    ]
    assert collection.queries == {"q1": "one", "q2": ""}
    assert collection.qrels == {"q1": {"d1": 1, "d2": 0}, "q2": {"d9": 2}}
    assert collection.spans == {"q1": [Span("d1", 4, 7)]}
    assert collection.split("dev") == ["q2", "q1"]
    assert list(collection.run("dev")["q1"]) == ["d1", "d2"]
    assert collection.run("dev.small") == collection.run("dev")


def test_spans_are_optional(toy_copy: Path) -> None:
    (toy_copy / "spans.jsonl.gz").unlink()
    assert Collection(toy_copy).spans == {}


def test_the_gold_passages_of_the_toy_hold_the_answers(toy: Collection) -> None:
    (span,) = toy.spans["river?"]
    assert toy.documents[span.doc_id].text[span.start : span.end] == "The answer for the river stands here."


def test_a_directory_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(CollectionError, match="nowhere: no such collection directory"):
        Collection(tmp_path / "nowhere")


PARTS: dict[str, Callable[[Collection], Any]] = {
    "corpus.jsonl": lambda c: c.documents,
    "queries.jsonl": lambda c: c.queries,
    "qrels.tsv": lambda c: c.qrels,
    "splits/dev.txt": lambda c: c.split("dev"),
    "run.dev.bm25.trec": lambda c: c.run("dev"),
}


@pytest.mark.parametrize("name", PARTS)
def test_a_missing_part_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(CollectionError, match=rf"has no {name} or {name}\.gz"):
        PARTS[name](Collection(tmp_path))


def remove(path: Path, name: str) -> None:
    for victim in (path / name, path / f"{name}.gz"):
        victim.unlink(missing_ok=True)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("corpus.jsonl", '{"_id": "a", "text": "x"}\n{"_id": "b", "te', "line 2 is not JSON"),
        ("corpus.jsonl", "[1, 2]\n", "line 1 has no '_id' that is a str"),
        ("corpus.jsonl", '{"_id": 7, "text": "x"}\n', "line 1 has no '_id' that is a str"),
        ("corpus.jsonl", '{"_id": "a", "text": null}\n', "line 1 has no 'text' that is a str"),
        ("queries.jsonl", '{"_id": "a"}\n', "line 1 has no 'text' that is a str"),
        ("qrels.tsv", "query-id corpus-id score\nq d high\n", "line 2 must be 'query document grade', not 'q"),
        ("qrels.tsv", "q 0 d high\n", "line 1 must be 'query 0 document grade'"),
        ("splits/dev.txt", "\n\n", "names no query"),
        ("run.dev.bm25.trec", "", "ranks nothing"),
        ("run.dev.bm25.trec", "q Q0 d 1 0.5\n", "line 1 has 5 fields, a TREC run has 6"),
    ],
)
def test_a_damaged_part_is_named_with_its_line(toy_copy: Path, name: str, content: str, said: str) -> None:
    remove(toy_copy, name)
    (toy_copy / name).write_text(content, encoding="utf-8")
    with pytest.raises(FileError) as caught:
        PARTS[name](Collection(toy_copy))
    assert said in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("start", "end"), [(4, 4), (7, 4), (-1, 4)])
def test_a_passage_without_a_character_is_refused(toy_copy: Path, start: int, end: int) -> None:
    remove(toy_copy, "spans.jsonl")
    row = {"qid": "q", "docid": "d", "start": start, "end": end}
    (toy_copy / "spans.jsonl").write_text(json.dumps(row) + "\n", encoding="utf-8")
    with pytest.raises(CollectionError, match=rf"query 'q' in document 'd' goes from {start} to {end}"):
        _ = Collection(toy_copy).spans


def test_damaged_spans_are_not_taken_for_none(toy_copy: Path) -> None:
    remove(toy_copy, "spans.jsonl")
    (toy_copy / "spans.jsonl").write_text('{"qid": "q", "docid": "d", "start": "4", "end": 7}\n', encoding="utf-8")
    with pytest.raises(FileError, match="no 'start' that is a int"):
        _ = Collection(toy_copy).spans


def test_unknown_documents_and_queries_are_named(toy: Collection) -> None:
    assert toy.document("river-0").title == "River"
    assert toy.query("river?") == "news of the river"
    with pytest.raises(CollectionError, match=r"names document 'sea-0', which corpus\.jsonl lacks"):
        toy.document("sea-0")
    with pytest.raises(CollectionError, match=r"names query 'sea', which queries\.jsonl lacks"):
        toy.query("sea")


def test_two_collections_of_one_name(toy: Collection, toy_copy: Path, tmp_path: Path) -> None:
    other = Collection(toy_copy.rename(tmp_path / "other"))
    assert distinct_names([toy, other]) == ["toy", "other"]
    with pytest.raises(CollectionError, match=r"one name \(toy, toy\)"):
        distinct_names([toy, toy])
