"""A collection's texts."""

from pathlib import Path

import pytest

from bulk.collection import Document, find, look_for, read_documents, read_queries
from bulk.errors import BulkError
from tests.bulk.jobs import write_lines


def test_only_wanted_documents_are_given(tmp_path: Path) -> None:
    write_lines(
        tmp_path / "corpus.jsonl", [{"_id": "a", "title": "T", "text": "x"}, {"_id": "b", "text": "y"}, {"_id": "c", "text": "z"}]
    )
    assert list(read_documents(tmp_path, {"a", "c"})) == [Document("a", "T", "x"), Document("c", "", "z")]


def test_queries_by_their_names(tmp_path: Path) -> None:
    write_lines(tmp_path / "queries.jsonl", [{"_id": "q1", "text": "tea"}, {"_id": "q2", "text": "ice"}])
    assert read_queries(tmp_path) == {"q1": "tea", "q2": "ice"}


def test_a_row_without_a_text_is_named(tmp_path: Path) -> None:
    write_lines(tmp_path / "queries.jsonl", [{"_id": "q1", "text": "tea"}, {"_id": "q2"}])
    with pytest.raises(BulkError, match="line 2: has no 'text' that is a text"):
        read_queries(tmp_path)


def test_the_compressed_file_comes_first_and_none_is_one_line(tmp_path: Path) -> None:
    assert look_for(tmp_path, "corpus") is None
    with pytest.raises(BulkError, match=r"has none of corpus.jsonl.gz, corpus.jsonl, corpus.parquet; name the collection"):
        find(tmp_path, "corpus")
    for name in ("corpus.jsonl", "corpus.jsonl.gz"):
        (tmp_path / name).touch()
        assert find(tmp_path, "corpus").name == name
