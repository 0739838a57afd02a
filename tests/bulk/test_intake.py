"""Lists as people write them: rows, runs, and a collection's texts; and from lists to shards, each distinct document once."""

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bulk import intake
from bulk.candidates import Given, GivenList, read_lists, read_run
from bulk.errors import BulkError
from bulk.intake import take_in
from bulk.options import Options
from bulk.rows import find, look_for, read_documents, read_lines, read_queries, read_rows
from bulk.tables import map_table
from bulk.work import Intake, Layout
from tests.bulk.jobs import layout, write_lines

LISTS = [
    {
        "qid": "q1",
        "query": "tea",
        "documents": [{"docid": "a", "text": "Tea is hot.", "score": 2}, {"id": 7, "title": "T", "text": ""}],
    },
    {"qid": "q2", "query": "ice", "documents": ["Ice is cold."]},
]
READ = [
    ("q1", "tea", [Given("a", "", "Tea is hot.", 2.0), Given("7", "T", "")]),
    ("q2", "ice", [Given("0", "", "Ice is cold.")]),
]
PAIRS = [
    {"qid": "q1", "query": "tea", "docid": "a", "text": "Tea is hot.", "score": 2},
    {"qid": "q1", "query": "tea", "docid": 7, "title": "T", "text": ""},
    {"qid": "q2", "query": "ice", "text": "Ice is cold."},
]


def without_places(lists: list[GivenList]) -> list[tuple[str, str | None, list[Given]]]:
    return [(one.qid, one.query, one.documents) for one in lists]


@pytest.mark.parametrize("rows", [LISTS, PAIRS], ids=["a row a list", "a row a pair"])
def test_a_row_is_a_list_or_a_pair(tmp_path: Path, rows: list[dict[str, Any]]) -> None:
    assert without_places(list(read_lists([write_lines(tmp_path / "lists.jsonl", rows)]))) == READ


def test_parquet_and_gzip_are_read_too(tmp_path: Path) -> None:
    pairs = [{**row, "seen": 1 << 62, "docid": None if "docid" not in row else str(row["docid"])} for row in PAIRS]
    pq.write_table(
        pa.Table.from_pylist(
            pairs, pa.schema(dict.fromkeys(("qid", "query", "docid", "title", "text"), pa.string()) | {"seen": pa.timestamp("us")})
        ),
        tmp_path / "p.parquet",
    )
    found = list(read_lists([tmp_path / "p.parquet"]))
    assert [one.qid for one in found] == ["q1", "q2"]
    assert [one.docid for one in found[0].documents] == ["a", "7"]
    with gzip.open(tmp_path / "lists.jsonl.gz", "wt", encoding="utf-8-sig") as out:
        out.writelines(json.dumps(row) + "\n" for row in LISTS)
    assert without_places(list(read_lists([tmp_path / "lists.jsonl.gz"]))) == READ


def test_a_query_without_a_name_is_its_own(tmp_path: Path) -> None:
    (found,) = read_lists([write_lines(tmp_path / "l.jsonl", [{"query": "tea \ud800", "documents": []}])])
    assert (found.qid, found.query) == ("tea \ufffd", "tea \ufffd")


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (["tea"], "line 1: is JSON, but no object"),
        ([LISTS[0], LISTS[0]], "line 2: query 'q1' was there before"),
        ([PAIRS[0], PAIRS[2], PAIRS[1]], "line 3: query 'q1' was there before: keep the rows of a query together"),
        ([PAIRS[0], {"qid": "q1", "docid": "b"}], "of a query together, in one file, each with the same 'query'"),
        ([{"documents": ["x"]}], "line 1: has neither 'query' nor 'qid'"),
        ([{"query": " ", "documents": ["x"]}], "line 1: the query is empty"),
        ([{"query": 3, "documents": ["x"]}], "line 1: 'query' must be a text, not 3"),
        ([{"query": "tea", "documents": "x"}], "'documents' must be a list of texts or objects, not 'x'"),
        ([{"query": "tea", "documents": [4]}], "line 1, document 0: a document must be a text or an object, not 4"),
        ([{"query": "tea", "documents": ["x", {"title": "T"}]}], "line 1, document 1: the document has neither 'text' nor 'docid'"),
        ([{"query": "tea", "documents": [{"id": 1.5, "text": ""}]}], "'docid' must be a text or a whole number, not 1.5"),
        (
            [{"query": "tea", "documents": [{"id": 1, "text": ""}, {"id": "1", "text": ""}]}],
            "1 documents of query 'tea' have the docid of",
        ),
        ([PAIRS[0] | {"score": "high"}], "line 1: a score must be a finite number, not 'high'"),
        ([PAIRS[0] | {"score": True}], "a score must be a finite number, not True"),
    ],
)
def test_an_invalid_list_is_one_line_that_names_the_place(tmp_path: Path, rows: list[Any], said: str) -> None:
    path = write_lines(tmp_path / "lists.jsonl", rows)
    with pytest.raises(BulkError) as error:
        list(read_lists([path]))
    assert said in str(error.value)
    assert str(error.value).startswith(str(path))


def test_a_run_is_ranked_by_its_scores(tmp_path: Path) -> None:
    run = tmp_path / "run.trec"
    run.write_text("q1 Q0 a 1 3.5 bm25\nq1 Q0 b 2 4.5 bm25\nq1 Q0 c 3 3.5 bm25\n\nq2 Q0 a 1 1 bm25\n", encoding="utf-8")
    first, second = read_run(run)
    assert [(one.docid, one.text, one.score) for one in first.documents] == [("b", None, 4.5), ("a", None, 3.5), ("c", None, 3.5)]
    assert (first.qid, first.query, second.qid, second.place) == ("q1", None, "q2", f"{run}, line 5")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("q1 Q0 a 1 3.5\n", "line 1: has 5 fields"),
        ("q1 Q0 a 1 nan bm25\n", "line 1: a score must be a finite number, not 'nan'"),
        ("q1 Q0 a 1 2 t\nq1 Q0 a 2 1 t\n", "have the docid of another"),
        ("q1 Q0 a 1 2 t\nq2 Q0 a 1 2 t\nq1 Q0 b 2 1 t\n", "line 3: query 'q1' was there before"),
    ],
)
def test_an_invalid_run_is_an_error(tmp_path: Path, text: str, said: str) -> None:
    run = tmp_path / "run.trec"
    run.write_text(text, encoding="utf-8")
    with pytest.raises(BulkError, match=said):
        list(read_run(run))


def test_a_line_that_is_no_json_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": \n', encoding="utf-8")
    with pytest.raises(BulkError, match=r"line 2: is not JSON .*: write an object a line"):
        list(read_rows(path))


@pytest.mark.parametrize("name", ["rows.jsonl.gz", "rows.parquet", "rows.jsonl"])
def test_a_damaged_file_is_one_line(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b'{"a": 1}\n' * 1000)[:-20])
    with pytest.raises(BulkError, match=rf"{name}: .*copy it again"):
        list(read_rows(path))


def test_what_is_wrong_with_a_file_is_one_line(tmp_path: Path) -> None:
    for name in ("none.jsonl", "none.parquet"):
        with pytest.raises(BulkError, match="cannot be read: No such file"):
            list(read_rows(tmp_path / name))
    pq.write_table(pa.table({"score": pa.array([1 << 62], pa.timestamp("us"))}), tmp_path / "far.parquet")
    with pytest.raises(BulkError, match=r"far.parquet: cannot be read as Parquet \(date value out of range"):
        list(read_rows(tmp_path / "far.parquet"))
    with pytest.raises(BulkError, match="cannot be read: Is a directory"):
        list(read_lines(tmp_path))
    write_lines(tmp_path / "queries.jsonl", [{"_id": "q1", "text": "tea"}, {"_id": "q2"}])
    with pytest.raises(BulkError, match="line 2: has no 'text' that is a text"):
        read_queries(tmp_path)


def test_only_wanted_documents_are_given(tmp_path: Path) -> None:
    (tmp_path / "queries.jsonl").write_text('{"_id": "q1", "text": "tea"}\n\n{"_id": "q2", "text": "ice"}\n', encoding="utf-8-sig")
    assert read_queries(tmp_path) == {"q1": "tea", "q2": "ice"}
    assert [row.place for row in read_rows(tmp_path / "queries.jsonl")] == [f"{tmp_path}/queries.jsonl, line {n}" for n in (1, 3)]
    write_lines(
        tmp_path / "corpus.jsonl", [{"_id": "a", "title": "T", "text": "x"}, {"_id": "b", "text": "y"}, {"_id": "c", "text": "z"}]
    )
    assert list(read_documents(tmp_path, {"a", "c"})) == [("a", "T", "x"), ("c", "", "z")]


def test_the_compressed_file_comes_first_and_none_is_one_line(tmp_path: Path) -> None:
    assert look_for(tmp_path, "corpus") is None
    with pytest.raises(BulkError, match=r"has none of corpus.jsonl.gz, corpus.jsonl, corpus.parquet; name the collection"):
        find(tmp_path, "corpus")
    for name in ("corpus.jsonl", "corpus.jsonl.gz"):
        (tmp_path / name).touch()
        assert find(tmp_path, "corpus").name == name


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
