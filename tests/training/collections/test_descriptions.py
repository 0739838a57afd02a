"""Collections of TREC files and of data sets: everything is read by ir_datasets, from files written here."""

import gzip
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from training.collections.collection import Collection
from training.collections.descriptions import PACKAGED
from training.collections.types import CollectionError, Document, FileError, Span
from training.commands.evaluate import main as evaluate_main
from training.commands.train import main as train_main

DOCUMENT = "<DOC>\n<DOCNO> {name} </DOCNO>\n<TITLE>{title}</TITLE>\n<TEXT>\n{text}\n</TEXT>\n</DOC>\n"
TOPIC = "<top>\n<num> Number: {name}\n<title> {title}\n\n<desc> Description:\nwhat is\na {title}?\n<narr> Narrative:\nany\n</top>\n"
TITLES = {"1": "river", "2": "stone", "3": "bridge", "4": "winter", "5": "garden", "6": "market"}


@pytest.fixture(autouse=True)
def ir_datasets_home(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path_factory.mktemp("ir_datasets")))


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """Six topics, each with a relevant document d1 ... d6; the seventh query is judged only where it is wrong."""
    with gzip.open(tmp_path / "documents.sgml.gz", "wt") as out:
        out.writelines(DOCUMENT.format(name=f"d{n}", title=t.title(), text=f"All about the {t} & more.") for n, t in TITLES.items())
    topics = "".join(TOPIC.format(name=n, title=t) for n, t in {**TITLES, "7": "island"}.items())
    (tmp_path / "topics.txt").write_text(topics, encoding="utf-8")
    qrels = "".join(f"{n} 0 d{n} 2\n{n} 0 d{int(n) % 6 + 1} 0\n" for n in TITLES) + "7 0 d1 0\n"
    (tmp_path / "qrels.txt").write_text(qrels, encoding="utf-8")
    run = "".join(f"{n} Q0 d{m} {7 - int(m)} {m} x\n" for n in TITLES for m in TITLES)
    (tmp_path / "run.trec").write_text(run, encoding="utf-8")
    return tmp_path


BASIC: dict[str, Any] = {
    "name": "hand",
    "documents": {"path": "documents.sgml.gz"},
    "candidates": "run.trec",
    "depth": 3,
    "splits": {"train": {"queries": {"path": "topics.txt"}, "qrels": "qrels.txt"}},
}


@pytest.fixture
def describe(files: Path) -> Callable[..., Collection]:
    """The collection of the files, some keys of its description replaced; `#2` and the like behind its name."""

    def make(behind: str = "", **changes: Any) -> Collection:
        (files / "hand.yaml").write_text(yaml.safe_dump(BASIC | changes), encoding="utf-8")
        return Collection(files / f"hand.yaml{behind}")

    return make


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


@pytest.mark.parametrize("key", ["document", "query"])
def test_what_it_lacks_is_named(describe: Callable[..., Collection], key: str) -> None:
    collection = describe()
    collection.split("train")
    with pytest.raises(CollectionError, match=f"names {key} '9'"):
        getattr(collection, key)("9")


def test_another_field_of_the_topics(describe: Callable[..., Collection]) -> None:
    collection = describe(field="description")
    collection.split("train")
    assert collection.query("2") == "what is a stone?"


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
    ("form", "content", "expected"),
    [
        ("tsv", "d1\tAll of it\n", Document("d1", "", "All of it")),
        ("jsonl", '{"_id": "d1", "title": "T", "text": "All of it", "url": "u"}\n', Document("d1", "T", "All of it")),
    ],
)
def test_other_documents(describe: Callable[..., Collection], files: Path, form: str, content: str, expected: Document) -> None:
    (files / "documents").write_text(content, encoding="utf-8")
    assert describe(documents={"path": "documents", "format": form}).document("d1") == expected


def test_a_directory_of_documents(describe: Callable[..., Collection], files: Path) -> None:
    (files / "docs").mkdir()
    (files / "documents.sgml.gz").rename(files / "docs" / "a.gz")
    assert describe(documents={"path": "docs"}).document("d5").title == "Garden"


def test_a_directory_with_a_description(describe: Callable[..., Collection], files: Path) -> None:
    describe()
    (files / "hand.yaml").rename(files / "collection.yaml")
    assert Collection(files).split("train") == list("123456")


def test_folds_that_are_dealt(describe: Callable[..., Collection]) -> None:
    """Each query is tested once, and never by what trained on it."""
    part = BASIC["splits"]["train"]
    rounds = [describe(f"#{n}", folds=3, splits={"all": part}) for n in (1, 2, 3)]
    assert sorted(query for c in rounds for query in c.split("test")) == list("123456")
    for one, after in zip(rounds, rounds[1:] + rounds[:1], strict=True):
        assert one.split("dev") == after.split("test")
        assert sorted(one.split("train") + one.split("dev") + one.split("test")) == list("123456")
        assert list(one.run("dev")) == one.split("dev")
    assert [c.name for c in rounds] == ["hand-fold-1", "hand-fold-2", "hand-fold-3"]
    first = describe(folds=3, splits={"all": part})
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
    plan = second.parts.plan(["train", "dev"])
    assert "split train: round 2 of 4, of a, d" in plan.reads
    assert [line.partition(":")[0] for line in plan.reads[-3:]] == ["split a", "split d", "split c"]


def test_a_plan_says_what_is_read_and_what_is_to_be_brought(describe: Callable[..., Collection], files: Path) -> None:
    documents, train = describe().parts.plan(["train"]).reads
    assert documents == "documents: trec files documents.sgml.gz"
    assert train == "split train: queries topics.txt; judgements qrels.txt; candidates: the best 3 of run.trec"
    assert describe().parts.plan(["train"]).brings == []
    (files / "run.trec").unlink()
    (files / "documents.sgml.gz").unlink()
    assert describe().parts.plan(["train"]).brings == [str(files / "run.trec"), str(files / "documents.sgml.gz")]


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


READS: dict[str, Callable[[Collection], Any]] = {
    "split": lambda c: c.split("train"),
    "run": lambda c: c.run("train"),
    "document": lambda c: c.document("d1"),
    "plan": lambda c: c.parts.plan(["train"]),
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
        ("plan", {"candidates": "scoreddocs"}, "TREC files have no scoreddocs; name a TREC run"),
        ("plan", {"splits": {"train": {"qrels": "qrels.txt"}}}, "a split needs datasets, or files of queries and of qrels"),
    ],
)
def test_what_cannot_be_read(describe: Callable[..., Collection], read: str, changes: dict[str, Any], said: str) -> None:
    with pytest.raises(FileError) as caught:
        READS[read](describe(**changes))
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


@pytest.fixture
def data_set(files: Path) -> Iterator[str]:
    """The files as a data set of ir_datasets, its splits below it, with scored documents and gold passages."""
    import ir_datasets
    from ir_datasets import formats, util
    from ir_datasets.datasets.base import Dataset

    def local(name: str, content: str | None = None) -> Any:
        if content is not None:
            (files / name).write_text(content, encoding="utf-8")
        return util.LocalDownload(files / name)

    documents = formats.TsvDocs(local("docs.tsv", "".join(f"d{n}\tAll about\u00a0the  {t}.\n" for n, t in TITLES.items())))
    passages = formats.TsvDocs(local("passages.tsv", "p1\tabout the river.\np2\tabout stones.\n"))
    queries = formats.TsvQueries(local("queries.tsv", "".join(f"{n}\t{t}\n" for n, t in TITLES.items())))
    qrels, scored = formats.TrecQrels(local("qrels.txt"), {}), formats.TrecScoredDocs(local("run.trec"))
    members = {
        "": Dataset(documents),
        "/train": Dataset(documents, queries, qrels, scored),
        "/dev": Dataset(documents, queries, qrels),
        "/gold": Dataset(passages, formats.TrecQrels(local("gold.txt", "1 0 p1 1\n2 0 p2 1\n3 0 p9 1\n"), {})),
    }
    name = f"toy-{files.name}"
    for below, member in members.items():
        ir_datasets.registry.register(name + below, member)
    yield name
    for below in members:
        del ir_datasets.registry._registered[name + below]


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


def test_what_a_data_set_lacks_is_said_by_its_plan(data_set: str, describe: Callable[..., Collection]) -> None:
    collection = Collection(Path(f"ir_datasets:{data_set}"))
    assert collection.parts.plan(["train"]).reads[-1].endswith("candidates: the best 100 of its scoreddocs (?)")
    with pytest.raises(CollectionError, match=f"{data_set}/dev has no scoreddocs; name a TREC run"):
        collection.parts.plan(["dev"])
    with pytest.raises(CollectionError, match=rf"ir_datasets:{data_set} has no split 'test'; it has dev, gold, train"):
        collection.split("test")
    with pytest.raises(CollectionError, match=f"{data_set}/gold has no queries"):
        describe(documents=data_set, splits={"train": f"{data_set}/gold"}).parts.plan(["train"])
    with pytest.raises(CollectionError, match=r"its queries have no field 'description'; they have query_id, text"):
        describe(documents=data_set, splits={"train": f"{data_set}/train"}, field="description").parts.plan(["train"])


def test_training_and_measuring_as_on_the_directory(toy_copy: Path, recipe_file: Path, tmp_path: Path, toy_run: Path) -> None:
    """The toy's own files, described: the same draws, so the same weights, and the same measures."""
    rows = [json.loads(line) for line in (toy_copy / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    part = {"qrels": "qrels.tsv.gz"}
    for split in ("train", "dev"):
        wanted = (toy_copy / "splits" / f"{split}.txt").read_text(encoding="utf-8").split()
        lines = [f"{row['_id']}\t{row['text']}\n" for name in wanted for row in rows if row["_id"] == name]
        (toy_copy / f"{split}.tsv").write_text("".join(lines), encoding="utf-8")
    splits = {
        name: part | {"queries": {"path": f"{name}.tsv", "format": "tsv"}, "candidates": f"run.{name}.bm25.trec.gz"}
        for name in ("train", "dev")
    }
    description = {"name": "toy", "documents": {"path": "corpus.jsonl.gz", "format": "jsonl"}, "splits": splits}
    path = toy_copy / "toy.yaml"
    path.write_text(yaml.safe_dump(description), encoding="utf-8")
    assert train_main([str(recipe_file), "--collection", str(path), "--out", str(tmp_path / "run"), "--cache", str(tmp_path)]) == 0
    weights = [(run / "checkpoint" / "model.safetensors").read_bytes() for run in (toy_run, tmp_path / "run")]
    assert weights[0] == weights[1]
    for collection in (path, toy_copy):
        out = tmp_path / collection.suffix / "out"
        assert evaluate_main(["--run", str(toy_run), "--collection", str(collection), "--out", str(out)]) == 0
    assert (tmp_path / "out" / "per_query.tsv").read_bytes() == (tmp_path / ".yaml" / "out" / "per_query.tsv").read_bytes()


@pytest.mark.parametrize("path", sorted(PACKAGED.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_collections_of_the_papers(path: Path) -> None:
    """Their names resolve in ir_datasets, without a download; what has no candidates there names a run to bring."""
    plan = Collection(Path(path.name)).parts.plan(["train", "dev", "test"])
    assert "documents: " in plan.reads[0]
    assert all(line.startswith(("split ", "gold passages: ")) for line in plan.reads[1:])
    assert all(name.endswith(".trec.gz") for name in plan.brings)
