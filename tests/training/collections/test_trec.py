"""TREC files, each format from a few lines; collections of them: see test_descriptions."""

import gzip
from pathlib import Path

import pytest

from training.data.datasets import Files, Topics, existing, file_documents, read_topics, resolve
from training.data.types import CollectionError


def test_topics_that_are_gzipped(tmp_path: Path) -> None:
    with gzip.open(tmp_path / "topics.gz", "wt") as out:
        out.write("1:news of  rivers\n2:bridges: old ones\n")
    assert read_topics(Topics(path="topics.gz", format="colon"), tmp_path) == {"1": "news of rivers", "2": "bridges: old ones"}


def test_topics_of_several_lines(tmp_path: Path) -> None:
    topic = "<top>\n<num> Number: 301\n<title> International\nCrime\n<desc> Description:\nWho?\n<narr> Narrative:\nAll.\n</top>\n"
    (tmp_path / "topics").write_text(topic, encoding="utf-8")
    topics = Topics(path="topics")
    assert read_topics(topics, tmp_path) == {"301": "International Crime"}
    assert read_topics(topics, tmp_path, "narrative") == {"301": "All."}


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


def test_keys_of_json_documents(tmp_path: Path) -> None:
    (tmp_path / "docs").write_text('{"id": "d", "contents": "text"}\n', encoding="utf-8")
    files = Files(path="docs", format="jsonl", fields={"doc_id": "id", "text": "contents"})
    assert tuple(file_documents(files, tmp_path).docs_store().get("d")) == ("d", "text")


def test_paths_are_relative_to_what_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve(Path("base"), "a/b") == Path("base/a/b")
    assert resolve(Path("base"), "~/b") == tmp_path / "b"
    assert resolve(Path("base"), str(tmp_path)) == tmp_path
    with pytest.raises(CollectionError, match="none: is not there"):
        existing(tmp_path, "none")
