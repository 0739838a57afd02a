"""What a described collection reads, from TREC files among others, and descriptions that cannot be meant."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.training.collections.descriptions import BASIC, TITLES
from training.data.collection import Collection
from training.data.datasets import Files, Topics, existing, file_documents, read_topics, resolve
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


def test_paths_are_relative_to_what_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve(Path("base"), "a/b") == Path("base/a/b")
    assert resolve(Path("base"), "~/b") == tmp_path / "b"
    assert resolve(Path("base"), str(tmp_path)) == tmp_path
    with pytest.raises(CollectionError, match="none: is not there"):
        existing(tmp_path, "none")


def test_documents_of_several_files_below_a_directory(tmp_path: Path) -> None:
    for name in ("a/one", "a/b/two"):
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        text = f"<DOC>\n<DOCNO> {Path(name).name} </DOCNO>\n<HEADLINE>H</HEADLINE>\n<TEXT>\n<P>\nText.\n</P>\n</TEXT>\n</DOC>\n"
        (tmp_path / "docs" / name).write_text(text, encoding="utf-8")
    store = file_documents(Files(path="docs"), tmp_path).docs_store()
    assert {name: (store.get(name).title, store.get(name).body) for name in ("one", "two")} == {
        "one": ("H", "Text."),
        "two": ("H", "Text."),
    }
    assert (tmp_path / "docs.pklz4").is_dir()  # beside the documents, not among them
