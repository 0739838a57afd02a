"""What a described collection reads, from TREC files and ir_datasets; its folds; descriptions that cannot be meant."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.training.collections.conftest import BASIC, TITLES
from training.data import datasets
from training.data.collection import Collection
from training.data.datasets import Files, Topics, file_documents, read_topics
from training.data.folds import make_folds, rotations
from training.data.types import CollectionError, Document, FileError, Span


def test_trec_files(describe: Callable[..., Collection]) -> None:
    collection = describe()
    assert collection.name == "hand"
    assert collection.split("train") == list("123456")  # 7 has no relevant document
    assert collection.query("3") == "bridge"
    assert collection.qrels["6"] == {"d6": 2, "d1": 0}
    assert collection.document("d2") == Document("d2", "Stone", "All about the stone & more.")
    assert collection.run("train")["1"] == {"d6": 6.0, "d5": 5.0, "d4": 4.0}
    assert collection.spans == {}


def test_documents_are_looked_up_not_loaded(describe: Callable[..., Collection], files: Path) -> None:
    collection = describe()
    assert "d6" in collection.documents
    assert "d7" not in collection.documents
    assert sorted(collection.documents) == [f"d{n}" for n in TITLES]
    assert len(collection.documents) == 6
    assert collection.present(["d1", "d7"]) == ["d1", "d7"]  # not asked: it would be as many reads as a run has lines
    (files / "documents.sgml.gz").write_bytes(b"")  # the store that the first look-up built is enough
    assert describe().document("d2").title == "Stone"


def test_judged_candidates(describe: Callable[..., Collection]) -> None:
    """All of them, in the order of their names, which gives no grade away."""
    run = describe(candidates="judged").run("train")
    assert {query: list(scores) for query, scores in run.items()}["6"] == ["d1", "d6"]
    assert list(run["2"]) == ["d2", "d3"]


@pytest.mark.parametrize("form", ["tsv", "colon", "xml"])
def test_other_topics(describe: Callable[..., Collection], files: Path, form: str) -> None:
    rows = {"tsv": "{}\t{}\n", "colon": "{}:{}\n", "xml": '<topic number="{}"><title>{}</title></topic>'}[form]
    body = "".join(rows.format(n, t) for n, t in TITLES.items())
    (files / "topics").write_text(f"<topics>{body}</topics>" if form == "xml" else body, encoding="utf-8")
    collection = describe(splits={"train": {"queries": {"path": "topics", "format": form}, "qrels": "qrels.txt"}})
    collection.split("train")
    assert collection.queries == TITLES


@pytest.mark.parametrize(
    ("form", "content", "title"),
    [
        ({"format": "tsv"}, "d1\tAll of it\n", ""),
        ({"format": "jsonl"}, '{"_id": "d1", "title": "T", "text": "All of it", "url": "u"}\n', "T"),
        ({"format": "jsonl", "fields": {"doc_id": "id", "text": "body"}}, '{"id": "d1", "title": "T", "body": "All of it"}\n', ""),
    ],
)
def test_other_documents(describe: Callable[..., Collection], files: Path, form: dict[str, Any], content: str, title: str) -> None:
    (files / "documents").write_text(content, encoding="utf-8")
    assert describe(documents={"path": "documents"} | form).document("d1") == Document("d1", title, "All of it")


def test_a_directory_with_a_description(describe: Callable[..., Collection], files: Path) -> None:
    describe()
    (files / "hand.yaml").rename(files / "collection.yaml")
    assert Collection(files).split("train") == list("123456")


READS: dict[str, Callable[[Collection], Any]] = {
    "split": lambda c: c.split("train"),
    "run": lambda c: c.run("train"),
    "document": lambda c: c.document("d1"),
}


TRAIN = BASIC["splits"]["train"]


@pytest.mark.parametrize(
    ("read", "changes", "said"),
    [
        ("split", {"splits": {"dev": TRAIN}}, "has no split 'train'; it describes dev"),
        ("split", {"splits": {"train": TRAIN | {"qrels": "none.txt"}}}, "none.txt: is not there"),
        ("split", {"splits": {"train": TRAIN | {"qrels": "topics.txt"}}}, "topics.txt: line 1 must be 'query 0 document grade'"),
        ("split", {"splits": {"train": TRAIN | {"queries": {"path": "qrels.txt", "format": "xml"}}}}, "ir_datasets cannot read it"),
        ("split", {"field": "summary"}, "topics.txt: queries: ir_datasets cannot read it (AttributeError"),
        ("split", {"splits": {"train": TRAIN | {"queries": {"path": "qrels.txt"}}}}, "no query of split train has a text"),
        ("split", {"splits": {"train": "no-such"}}, "ir_datasets has no 'no-such'"),
        ("run", {"candidates": "none.trec"}, "none.trec: is not there"),
        ("run", {"candidates": "qrels.txt"}, "line 1 has 4 fields, a TREC run has 6"),
        ("run", {"candidates": "scoreddocs"}, "split train has no candidates"),
        ("document", {"documents": {"path": "none"}}, "none: is not there"),
        ("document", {"documents": {"path": "topics.txt", "format": "jsonl"}}, "ir_datasets cannot read it (JSONDecodeError"),
    ],
)
def test_what_cannot_be_read(describe: Callable[..., Collection], read: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(FileError) as caught:
        READS[read](describe(**changes))
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_data_set(data_set: str) -> None:
    collection = Collection(Path(f"ir_datasets:{data_set}"))
    assert collection.name == data_set
    assert collection.split("train") == list("123456")
    assert collection.run("train")["4"] == {f"d{n}": float(n) for n in reversed(TITLES)}
    assert collection.document("d1") == Document("d1", "", "All about\u00a0the  river.")
    assert Collection(Path(f"ir_datasets:{data_set}/train")).name == f"{data_set}-train"
    assert Collection(Path(f"ir_datasets:{data_set}/train")).split("dev") == list("123456")


def test_a_data_set_described(data_set: str, describe: Callable[..., Collection]) -> None:
    collection = describe(documents=data_set, splits={"test": f"{data_set}/dev"}, passages=f"{data_set}/gold")
    assert collection.split("test") == collection.split("train")
    assert dict(collection.spans) == {"1": [Span("d1", 4, 21)]}
    assert len(collection.spans) == 1


@pytest.mark.parametrize(
    ("changes", "behind", "said"),
    [
        ({"documents": 7}, "", "documents"),
        ({"nmae": "x"}, "", "nmae: Extra inputs are not permitted"),
        ({"name": "a/b"}, "", "name: String should match"),
        ({"folds": 3}, "", "its folds need the split 'all'"),
        ({"folds": ["a", "b", "c"]}, "", "its folds need the split 'a'"),
        ({"folds": 2, "splits": {"all": "x"}}, "", "2 folds are too few"),
        ({"folds": 3, "splits": {"all": "x"}}, "#4", "there is no such fold; there are 3"),
        ({}, "#1", "there is no such fold; there are 0"),
        ({}, "#two", "behind the # stands the number of a fold"),
    ],
)
def test_descriptions_that_mean_nothing(
    describe: Callable[..., Collection], changes: dict[str, Any], behind: str, said: str
) -> None:
    with pytest.raises(CollectionError) as caught:
        describe(behind, **changes)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_description(tmp_path: Path) -> None:
    with pytest.raises(
        CollectionError, match=r"nowhere\.yaml: no such file, here or among those that come along \(.*robust04\.yaml"
    ):
        Collection(tmp_path / "nowhere.yaml")
    (tmp_path / "bad.yaml").write_text("a: [", encoding="utf-8")
    with pytest.raises(CollectionError, match=r"bad\.yaml: cannot be read as YAML"):
        Collection(tmp_path / "bad.yaml")


def test_topics_of_several_lines(tmp_path: Path) -> None:
    topic = "<top>\n<num> Number: 301\n<title> International\nCrime\n<desc> Description:\nWho?\n<narr> Narrative:\nAll.\n</top>\n"
    (tmp_path / "topics").write_text(topic, encoding="utf-8")
    topics = Topics(path="topics")
    assert read_topics(topics, tmp_path) == {"301": "International Crime"}
    assert read_topics(topics, tmp_path, "narrative") == {"301": "All."}


def test_documents_of_several_files_below_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("a/one", "a/b/two"):
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        text = f"<DOC>\n<DOCNO> {Path(name).name} </DOCNO>\n<HEADLINE>H</HEADLINE>\n<TEXT>\n<P>\nText.\n</P>\n</TEXT>\n</DOC>\n"
        (tmp_path / "docs" / name).write_text(text, encoding="utf-8")
    store = file_documents(Files(path="~/docs"), Path("elsewhere")).docs_store()
    assert {name: (store.get(name).title, store.get(name).body) for name in ("one", "two")} == {
        "one": ("H", "Text."),
        "two": ("H", "Text."),
    }
    assert (tmp_path / "docs.pklz4").is_dir()  # beside the documents, not among them


@pytest.mark.parametrize(
    ("name", "split", "expected"),
    [
        ("msmarco-document", "train", "msmarco-document/train"),
        ("msmarco-document/train", "train", "msmarco-document/train"),
        ("msmarco-document/train", "dev", "msmarco-document/dev"),
        ("msmarco-document", "trec-dl-2019/judged", "msmarco-document/trec-dl-2019/judged"),
        ("disks45/nocr/trec-robust-2004", "fold3", "disks45/nocr/trec-robust-2004/fold3"),
        ("beir/scifact", "test", "beir/scifact/test"),
    ],
)
def test_splits_by_name(name: str, split: str, expected: str) -> None:
    assert datasets.find_split(name, split) == expected


def test_names_that_there_are_not() -> None:
    with pytest.raises(CollectionError, match=r"ir_datasets:gov2 has no split 'train'; it has trec-mq-2007, trec-mq-2008"):
        datasets.find_split("gov2", "train")
    with pytest.raises(CollectionError, match="ir_datasets has no 'disk45'; is it disks45"):
        datasets.load("disk45")


class Marked(NamedTuple):
    doc_id: str
    title: str | None
    body: str
    marked_up_doc: bytes


class Other(NamedTuple):
    doc_id: str
    abstract: str

    def default_text(self) -> str:
        return self.abstract


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        (Marked("d", "T", "text", b"<text>"), Document("d", "T", "text")),
        (Marked("d", None, "", b""), Document("d", "", "")),
        (Other("d", "an abstract"), Document("d", "", "an abstract")),
    ],
)
def test_records_as_documents(row: Any, expected: Document) -> None:
    assert datasets.to_document(row) == expected


def test_a_page_of_gov2() -> None:
    """Its record is HTML in bytes."""
    from ir_datasets.datasets.gov2 import Gov2Doc

    html = b"<html><title>Old\nrivers</title><body><p>They <b>f</b>low.<P>Down<br>hill.<script>no()</script></body></html>"
    page = Gov2Doc("GX000-00-0", "http://a.gov", "HTTP/1.1 200 OK\n", html, "text/html")
    _, title, text = datasets.to_document(page)
    assert title == "Old rivers"
    assert text.split() == ["They", "flow.", "Down", "hill."]


IDS = st.sets(st.text("abcdef0123", min_size=1), min_size=3, max_size=40)


@given(IDS, st.integers(3, 6), st.integers(0, 3), st.randoms())
def test_every_query_is_dealt_once_and_alike(queries: set[str], count: int, seed: int, rng: object) -> None:
    count = min(count, len(queries))
    folds = make_folds(queries, count, seed)
    assert sorted(query for fold in folds for query in fold) == sorted(queries)
    assert max(map(len, folds)) - min(map(len, folds)) <= 1
    assert make_folds(sorted(queries, reverse=True), count, seed) == folds


@pytest.mark.parametrize(("queries", "count"), [("abcdef", 2), ("ab", 3), ("", 5)])
def test_folds_that_cannot_be_dealt(queries: str, count: int) -> None:
    with pytest.raises(ValueError, match=f"{len(queries)} queries cannot be dealt into {count} folds"):
        make_folds(queries, count)


def test_rotations_by_hand() -> None:
    """Five folds: three train, one validates, one tests."""
    rounds = rotations([["a"], ["b"], ["c"], ["d"], ["e", "f"]])
    assert [(r.train, r.dev, r.test) for r in rounds] == [
        (["c", "d", "e", "f"], ["b"], ["a"]),
        (["a", "d", "e", "f"], ["c"], ["b"]),
        (["a", "b", "e", "f"], ["d"], ["c"]),
        (["a", "b", "c"], ["e", "f"], ["d"]),
        (["b", "c", "d"], ["a"], ["e", "f"]),
    ]


def test_folds_that_are_dealt(describe: Callable[..., Collection]) -> None:
    """Each query is tested once, and never by what trained on it."""
    rounds = [describe(f"#{n}", folds=3, splits={"all": TRAIN}) for n in (1, 2, 3)]
    assert sorted(query for c in rounds for query in c.split("test")) == list("123456")
    for one, after in zip(rounds, rounds[1:] + rounds[:1], strict=True):
        assert one.split("dev") == after.split("test")
        assert sorted(one.split("train") + one.split("dev") + one.split("test")) == list("123456")
        assert list(one.run("dev")) == one.split("dev")
    assert [c.name for c in rounds] == ["hand-fold-1", "hand-fold-2", "hand-fold-3"]
    first = describe(folds=3, splits={"all": TRAIN})
    assert (first.name, first.split("test")) == ("hand", rounds[0].split("test"))
    assert first.split("all") == list("123456")


def test_folds_that_are_splits(describe: Callable[..., Collection], files: Path) -> None:
    lines = (files / "qrels.txt").read_text(encoding="utf-8").splitlines(keepends=True)
    splits = {}
    for fold in ("a", "b", "c", "d"):
        mine = [line for line in lines if line[0] in {"a": "12", "b": "34", "c": "5", "d": "6"}[fold]]
        (files / f"{fold}.txt").write_text("".join(mine), encoding="utf-8")
        splits[fold] = {"queries": {"path": "topics.txt"}, "qrels": f"{fold}.txt"}
    second = describe("#2", folds=list("abcd"), splits=splits)
    assert (second.split("test"), second.split("dev"), second.split("train")) == (["3", "4"], ["5"], ["1", "2", "6"])
    assert list(second.run("train")) == ["1", "2", "6"]


@given(IDS, st.integers(3, 6))
def test_no_query_is_tested_by_a_model_that_saw_it(queries: set[str], count: int) -> None:
    rounds = rotations(make_folds(queries, min(count, len(queries))))
    assert sorted(query for r in rounds for query in r.test) == sorted(queries)
    for r in rounds:
        assert not {*r.train} & {*r.dev} | {*r.train} & {*r.test} | {*r.dev} & {*r.test}
        assert {*r.train, *r.dev, *r.test} == queries
