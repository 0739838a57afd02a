"""Collections of TREC files and of a data set: everything is read by ir_datasets, from files written here."""

import gzip
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from training.data.collection import Collection

DOCUMENT = "<DOC>\n<DOCNO> {name} </DOCNO>\n<TITLE>{title}</TITLE>\n<TEXT>\n{text}\n</TEXT>\n</DOC>\n"
TOPIC = "<top>\n<num> Number: {name}\n<title> {title}\n\n<desc> Description:\nwhat is\na {title}?\n<narr> Narrative:\nany\n</top>\n"
TITLES = {"1": "river", "2": "stone", "3": "bridge", "4": "winter", "5": "garden", "6": "market"}
BASIC: dict[str, Any] = {
    "name": "hand",
    "documents": {"path": "documents.sgml.gz"},
    "candidates": "run.trec",
    "depth": 3,
    "splits": {"train": {"queries": {"path": "topics.txt"}, "qrels": "qrels.txt"}},
}


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


@pytest.fixture
def describe(files: Path) -> Callable[..., Collection]:
    """The collection of the files, some keys of its description replaced; `#2` and the like behind its name."""

    def make(behind: str = "", **changes: Any) -> Collection:
        (files / "hand.yaml").write_text(yaml.safe_dump(BASIC | changes), encoding="utf-8")
        return Collection(files / f"hand.yaml{behind}")

    return make


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
