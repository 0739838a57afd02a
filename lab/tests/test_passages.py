"""Passages of documents, by hand."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lab.passages import Gold, Paragraphs, WholeDocuments, open_passages, paragraphs
from tests.training.collections.passages import write_collection
from training.data.collection import Collection


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("one\n\ntwo\nlines\n \n\tthree ", ["one", "two\nlines", "three"]),  # between blank lines, so that a line end is none
        ("A: one\nB: two\n", ["A: one", "B: two"]),  # a transcript has no blank line: its turns
        ("\n\n  one\ntwo\n\n", ["one", "two"]),  # those around it do not count
        ("one", ["one"]),
        (" \n\n ", []),
        ("", []),
    ],
)
def test_paragraphs_by_hand(text: str, expected: list[str]) -> None:
    assert [text[start:end] for start, end in paragraphs(text)] == expected


@given(st.text(alphabet="ab \n\t", max_size=40))
def test_paragraphs_hold_every_word_in_order(text: str) -> None:
    found = [text[start:end] for start, end in paragraphs(text)]
    assert " ".join(found).split() == text.split()
    assert [part for part in found if part != part.strip() or not part] == []


def test_a_span_is_widened_to_its_paragraphs(tmp_path: Path) -> None:
    """`two` stands in the first paragraph; from `four` to `five` is in two; white space alone is in none."""
    text = "one two\n\nthree four\n\nfive six"
    spans = [("q", "d", 4, 7), ("q", "d", 15, 23), ("q", "d", 7, 9), ("r", "nowhere", 0, 3)]
    path = write_collection(tmp_path / "c", {"d": text, "e": "seven"}, {"q": ["d", "gone"], "r": []}, {"dev": ["q"]}, spans)
    passages = open_passages(Collection(path))
    assert isinstance(passages, Paragraphs)
    assert [(name, passages.text(name), passages.source(name)) for name in passages.ids] == [
        ("d:0", "one two", "d"),
        ("d:9", "three four", "d"),
        ("d:21", "five six", "d"),
        ("e:0", "seven", "e"),
    ]
    assert passages.relevant("q") == [Gold("one two", ("d:0",)), Gold("three four\n\nfive six", ("d:9", "d:21"))]
    assert passages.relevant("r") == passages.relevant("unknown") == []
    assert passages.sources("q") == ["d"]


def test_documents_are_passages_where_nothing_says_spans(tmp_path: Path) -> None:
    path = write_collection(tmp_path / "c", {"a": " one \n", "b": "two\n\nthree"}, {"q": ["a", "gone"]}, {"dev": ["q"]})
    passages = open_passages(Collection(path))
    assert isinstance(passages, WholeDocuments)
    assert [passages.text(name) for name in passages.ids] == ["one", "two\n\nthree"]
    assert passages.relevant("q") == [Gold("one", ("a",))]
    assert passages.source("b") == "b"
