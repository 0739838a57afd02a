"""Judged passages, found again in documents."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.described import AlignedSpans, find_passage
from training.data.types import Document, Span


@pytest.mark.parametrize(
    ("text", "passage", "expected"),
    [
        ("one two three", "two three", (4, 13)),
        ("one\n two\t\tthree two  three", " two three\n", (5, 15)),
        ("one (two)? three", "(two)? three", (4, 16)),
        ("one two", "two three", None),
        ("one two", " ", None),
        ("", "two", None),
    ],
)
def test_places_by_hand(text: str, passage: str, expected: tuple[int, int] | None) -> None:
    assert find_passage(text, passage) == expected


WORDS = st.lists(st.text(st.characters(blacklist_categories=["Z", "C"]), min_size=1, max_size=4), min_size=1, max_size=6)


@given(WORDS, WORDS, WORDS, st.sampled_from([" ", "\n", "  \t"]))
def test_a_passage_is_found_whatever_stands_between_its_words(
    before: list[str], words: list[str], after: list[str], gap: str
) -> None:
    text = gap.join(before + words + after)
    start, end = find_passage(text, " ".join(words)) or (0, 0)
    assert text[start:end].split() == words


def test_only_relevant_passages_of_relevant_documents() -> None:
    documents = {name: Document(name, "", f"{name} has one two and three") for name in ("a", "b")}
    passages = {name: Document(name, "", text) for name, text in (("p", "one two"), ("q", "three"), ("r", "a has"))}
    spans = AlignedSpans(
        {"1": {"a": 1, "b": 0, "c": 1}, "2": {"b": 1}, "3": {"b": 2}},
        {"1": {"p": 1, "q": 0}, "2": {"r": 1}, "3": {"p": 1, "q": 3}},
        documents,
        passages,
    )
    assert spans["1"] == [Span("a", 6, 13)]
    assert dict(spans) == {"1": [Span("a", 6, 13)], "3": [Span("b", 6, 13), Span("b", 18, 23)]}
    assert "2" not in spans
    assert spans.get("4", []) == []
