"""What is asked of ir_datasets: names, splits, records."""

from typing import Any, NamedTuple

import pytest

from training.data import datasets
from training.data.types import CollectionError, Document


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


def test_splits_that_there_are_not() -> None:
    with pytest.raises(CollectionError, match=r"ir_datasets:gov2 has no split 'train'; it has trec-mq-2007, trec-mq-2008"):
        datasets.find_split("gov2", "train")


def test_an_unknown_name() -> None:
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
