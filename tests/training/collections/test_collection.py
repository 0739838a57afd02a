"""Collections: what each part reads as, what is written, and how what is missing or damaged is said."""

import gzip
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.collection import AlignedSpans, Collection
from training.data.directory import write_directory
from training.data.files import join_runs, numbered_lines, open_text, ranked, read_run, write_run
from training.data.first_stage import bm25_run, candidate_pool, complete_run, first_stage_run
from training.data.types import CollectionError, Document, FileError, Span, find_passage


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
    (path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t2\n", encoding="utf-8")  # as BEIR writes them
    assert Collection(path).qrels == {"q": {"d": 2}}


PARTS: dict[str, Callable[[Collection], Any]] = {
    "corpus.jsonl": lambda c: c.documents,
    "queries.jsonl": lambda c: c.queries,
    "qrels.tsv": lambda c: c.qrels,
    "splits/dev.txt": lambda c: c.split("dev"),
    "run.dev.bm25.trec": lambda c: c.run("dev"),
}
SPAN = '{{"qid": "q", "docid": "d", "start": {}, "end": {}}}\n'
ALL_PARTS = PARTS | {"spans.jsonl": lambda c: c.spans}  # without a spans.jsonl there are none


@pytest.mark.parametrize("name", PARTS)
def test_a_missing_part_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(CollectionError, match=rf"has no {name} or {name}\.gz"):
        PARTS[name](Collection(tmp_path))


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("corpus.jsonl", '{"_id": "a", "text": "x"}\n{"_id": "b", "te', "line 2 is not JSON"),
        ("corpus.jsonl", "[1, 2]\n", "line 1 has no '_id' that is a str"),
        ("corpus.jsonl", '{"_id": "a", "text": null}\n', "line 1 has no 'text' that is a str"),
        ("queries.jsonl", '{"_id": "a"}\n', "line 1 has no 'text' that is a str"),
        ("qrels.tsv", "query-id corpus-id score\nq d high\n", "line 2 must be 'query document grade', not 'q"),
        ("qrels.tsv", "q 0 d high\n", "line 1 must be 'query 0 document grade'"),
        ("splits/dev.txt", "\n\n", "names no query"),
        ("run.dev.bm25.trec", "", "ranks nothing"),
        ("run.dev.bm25.trec", "q Q0 d 1 0.5\n", "line 1 has 5 fields, a TREC run has 6"),
        ("run.dev.bm25.trec", "q Q0 d 1 1.0 t\nq Q0 a document 1 0.5 t\n", "line 2 has 7 fields"),
        ("run.dev.bm25.trec", "q Q0 d 1 best t\n", "line 1 has 'best' where a TREC run has the score"),
        ("run.dev.bm25.trec", "q Q0 d 1 nan t\n", "line 1 has 'nan' where"),
        ("spans.jsonl", SPAN.format('"4"', 7), "no 'start' that is a int"),
        ("spans.jsonl", SPAN.format(4, 4), "the passage of query 'q' in document 'd' goes from 4 to 4"),
        ("spans.jsonl", SPAN.format(7, 4), "goes from 7 to 4"),
        ("spans.jsonl", SPAN.format(-1, 4), "goes from -1 to 4"),
    ],
)
def test_a_damaged_part_is_named_with_its_line(toy_copy: Path, name: str, content: str, said: str) -> None:
    (toy_copy / f"{name}.gz").unlink(missing_ok=True)
    (toy_copy / name).write_text(content, encoding="utf-8")
    with pytest.raises(FileError) as caught:
        ALL_PARTS[name](Collection(toy_copy))
    assert said in str(caught.value)
    assert name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_unknown_documents_and_queries_are_named(toy: Collection) -> None:
    assert toy.document("river-0").title == "River"
    assert toy.query("river?") == "news of the river"
    with pytest.raises(CollectionError, match=r"names document 'sea-0', which corpus\.jsonl lacks"):
        toy.document("sea-0")
    with pytest.raises(CollectionError, match=r"names query 'sea', which queries\.jsonl lacks"):
        toy.query("sea")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Two spans of one document are one judgement."""
    documents = [Document("d", "Köln", "one\ntwo"), Document("e", "", "three")]
    spans = {"q": [Span("d", 0, 3), Span("d", 4, 7)], "r": [Span("e", 0, 5)]}
    write_directory(tmp_path / "in" / "it", documents, {"q": "eins?", "r": "drei"}, spans, {"dev": ["r"], "test": ["q"]})
    read = Collection(tmp_path / "in" / "it")
    assert list(read.documents.values()) == documents
    assert read.queries == {"q": "eins?", "r": "drei"}
    assert read.spans == spans
    assert read.qrels == {"q": {"d": 1}, "r": {"e": 1}}
    assert (read.split("dev"), read.split("test"), read.has_run("dev")) == (["r"], ["q"], False)
    with pytest.raises(FileExistsError):
        write_directory(tmp_path / "in" / "it", documents, {}, {}, {})


WHOLE = gzip.compress(b"".join(b"line %d of a file\n" % i for i in range(2000)))


@pytest.mark.parametrize(
    "content",
    [WHOLE[: len(WHOLE) // 2], b"line 1\nline 2\n", WHOLE[:500] + b"\xff" * 40 + WHOLE[540:], gzip.compress(b"caf\xe9\n")],
    ids=["cut short", "not gzip", "altered", "not UTF-8"],
)
def test_damage_names_the_file(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "lines.gz"
    path.write_bytes(content)
    with pytest.raises(FileError, match=r"lines\.gz: damaged, copy it again"):
        list(numbered_lines(path))


def test_the_same_text_gives_the_same_bytes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gzip would write the time."""
    written = []
    for seconds in (1e9, 2e9):
        monkeypatch.setattr("time.time", lambda seconds=seconds: seconds)
        with open_text(tmp_path / "lines.gz", "w") as out:
            out.write("one\n")
        written.append((tmp_path / "lines.gz").read_bytes())
    assert written[0] == written[1]


NAMES = st.text("abc-_.:éß#", min_size=1, max_size=6)
RUNS = st.dictionaries(NAMES, st.dictionaries(NAMES, st.floats(-1e3, 1e3), min_size=1, max_size=8), max_size=4)


def test_a_run_in_its_file(tmp_path: Path) -> None:
    """Read in the order of the scores, whatever the ranks say; written so, ties in the order given."""
    path = tmp_path / "x.trec"
    path.write_text("q Q0 a 1 0.5 t\nq\tQ0\tb 2 -inf t\n\nq Q0 c 3 2e0 t\nq Q0 d 4 0.5 t\n", encoding="utf-8")
    run = read_run(path)
    assert list(run["q"].items()) == [("c", 2.0), ("a", 0.5), ("d", 0.5), ("b", -math.inf)]
    write_run({"q": {"a": 0.25, "b": 3.0, "c": -math.inf}}, path, "tag")
    assert path.read_text(encoding="utf-8") == "q Q0 b 1 3.000000 tag\nq Q0 a 2 0.250000 tag\nq Q0 c 3 -inf tag\n"


@given(RUNS)
def test_order_survives_the_file_even_where_rounding_makes_ties(tmp_path_factory: pytest.TempPathFactory, run: dict) -> None:
    path = tmp_path_factory.getbasetemp() / "round-trip.trec.gz"
    write_run(run, path, "x")
    back = read_run(path)
    assert {q: list(scores) for q, scores in back.items()} == {q: list(ranked(scores)) for q, scores in run.items()}
    assert all(back[q][d] == pytest.approx(run[q][d], abs=1e-6) for q in run for d in run[q])


def test_test_folds_join(tmp_path: Path) -> None:
    runs = [{"a": {"x": 2.0, "y": 1.0}}, {"b": {"x": 1.0}}, {"c": {"z": 3.0}, "a": {"y": 1.0}}]
    paths = [tmp_path / f"{number}.trec" for number in range(3)]
    for run, path in zip(runs, paths, strict=True):
        write_run(run, path, "tag")
    assert join_runs(paths[:2]) == runs[0] | runs[1]
    with pytest.raises(FileError, match="query a was ranked by a run before it"):
        join_runs(paths)


@pytest.mark.parametrize(
    ("text", "passage", "expected"),
    [
        ("one two three", "two three", (4, 13)),
        ("one\n two\t\tthree two  three", " two three\n", (5, 15)),
        ("one (two)? three", "(two)? three", (4, 16)),
        ("one two", "two three", None),
        ("one two", " ", None),
        ("", "two", None),
    ],
)
def test_places_by_hand(text: str, passage: str, expected: tuple[int, int] | None) -> None:
    assert find_passage(text, passage) == expected


def test_only_relevant_passages_of_relevant_documents() -> None:
    documents = {name: Document(name, "", f"{name} has one two and three") for name in ("a", "b")}
    passages = {name: Document(name, "", text) for name, text in (("p", "one two"), ("q", "three"), ("r", "a has"))}
    spans = AlignedSpans(
        {"1": {"a": 1, "b": 0, "c": 1}, "2": {"b": 1}, "3": {"b": 2}},
        {"1": {"p": 1, "q": 0}, "2": {"r": 1}, "3": {"p": 1, "q": 3}},
        documents,
        passages,
    )
    assert spans["1"] == [Span("a", 6, 13)]
    assert dict(spans) == {"1": [Span("a", 6, 13)], "3": [Span("b", 6, 13), Span("b", 18, 23)]}
    assert "2" not in spans
    assert spans.get("4", []) == []


def hand(tmp_path: Path, texts: dict[str, str], queries: dict[str, str]) -> Collection:
    path = tmp_path / "hand"
    path.mkdir()
    for name, rows in (("corpus", texts), ("queries", queries)):
        with open_text(path / f"{name}.jsonl", "w") as out:
            out.writelines(json.dumps({"_id": key, "text": text}) + "\n" for key, text in rows.items())
    return Collection(path)


def test_scores_by_hand(tmp_path: Path) -> None:
    """Lucene's BM25: ln(1 + (N - df + 0.5) / (df + 0.5)) * tf / (tf + k1 * (1 - b + b * len / mean))."""
    texts = {"a": "rivers river stone", "b": "stone", "c": "bridge bridges"}
    run = bm25_run(hand(tmp_path, texts, {"q": "the river, stones!"}), ["q"], ["a", "b", "c"], depth=2)
    mean = (3 + 1 + 2) / 3
    river, stone = math.log(1 + 2.5 / 1.5), math.log(1 + 1.5 / 2.5)
    of_a = 0.9 * (0.6 + 0.4 * 3 / mean)
    of_b = 0.9 * (0.6 + 0.4 * 1 / mean)
    assert list(run["q"]) == ["a", "b"]
    assert run["q"]["a"] == pytest.approx(river * 2 / (2 + of_a) + stone * 1 / (1 + of_a), rel=1e-5)
    assert run["q"]["b"] == pytest.approx(stone / (1 + of_b), rel=1e-5)


def test_empty_documents_and_queries_are_no_obstacle(tmp_path: Path) -> None:
    collection = hand(tmp_path, {"a": "river", "b": "", "c": "..."}, {"q": "river", "none": "", "stop": "the", "new": "zebra"})
    run = bm25_run(collection, ["q", "none", "stop", "new"], ["a", "b", "c"])
    assert next(iter(run["q"])) == "a"
    assert [sorted(scores) for scores in run.values()] == [["a", "b", "c"]] * 4
    assert all(type(score) is float for scores in run.values() for score in scores.values())

    with pytest.raises(CollectionError, match="none of the 2 documents to retrieve from has a word"):
        bm25_run(collection, ["q"], ["b", "c"])


def test_only_what_the_run_leaves_out_is_retrieved_from_the_pool_that_it_names(toy_copy: Path) -> None:
    """Of a part of train, which shares its run: three of four documents a query."""
    toy = Collection(toy_copy)
    (toy_copy / "splits" / "train.part.txt").write_text("river!\nstone?\nbridge!\n", encoding="utf-8")
    assert candidate_pool(toy, "dev") == sorted(f"{t}-{n}" for t in ("teacher", "letter", "forest", "window") for n in range(4))
    given, complete = toy.run("train"), complete_run(toy, "train.part", depth=3)
    assert list(complete) == ["stone?", "river!", "bridge!"]
    assert list(complete["stone?"].items()) == list(given["stone?"].items())[:3]
    assert all(len(scores) == 3 for scores in complete.values())
    assert all(d.startswith(q[:-1]) for q, scores in complete.items() for d in scores)
    assert set().union(*complete.values()) <= set(candidate_pool(toy, "train"))
    assert first_stage_run(toy, "train.part", depth=3) == {"stone?": complete["stone?"]}
    (toy_copy / "splits" / "train.other.txt").write_text("teacher?\n", encoding="utf-8")
    with pytest.raises(CollectionError, match=r"no query of split train\.other is in its first-stage run"):
        first_stage_run(toy, "train.other")


def test_what_the_collection_lacks_is_named(toy: Collection) -> None:
    with pytest.raises(CollectionError, match="query 'sea\\?'"):
        bm25_run(toy, ["sea?"], ["river-0"])
    with pytest.raises(CollectionError, match="document 'sea-0'"):
        bm25_run(toy, ["river?"], ["river-0", "sea-0"])


def test_without_a_run_all_documents_are_retrieved_from(toy_copy: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """On the toy a query names its topic: three of the topic's four documents say it all the time, and come first."""
    for run in toy_copy.glob("run.*"):
        run.unlink()
    collection = Collection(toy_copy)
    assert not collection.has_run("train")
    assert candidate_pool(collection, "train") == sorted(collection.documents)
    run = first_stage_run(collection, "train", depth=5)
    assert list(run) == collection.split("train")
    for query, scores in run.items():
        assert len(scores) == 5
        assert set(list(scores)[:3]) == {f"{query[:-1]}-{number}" for number in range(3)}
    assert complete_run(collection, "train", depth=5) == run
    assert "has no first-stage run of split train; BM25 retrieves 5 of all 48 documents for each of 16" in capsys.readouterr().err
