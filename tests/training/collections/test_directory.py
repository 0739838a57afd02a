"""A collection directory that was written is read again; what is damaged in one, test_collection.py has."""

from pathlib import Path

import pytest

from training.data.collection import Collection
from training.data.directory import read_qrels, write_directory
from training.data.types import Document, Span


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


def test_judgements_with_beirs_header(tmp_path: Path) -> None:
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\td\t2\n", encoding="utf-8")
    assert read_qrels(tmp_path / "qrels.tsv") == {"q": {"d": 2}}
