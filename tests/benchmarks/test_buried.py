"""Buried answers: seeded, whole, among distractors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.buried import Filler, Pair, bury, candidates, distractors, filler_of, generator

WORD = st.text(st.characters(exclude_categories=["Z", "C"]), min_size=1, max_size=8)
PAIRS = [
    Pair("zoo-01", "Who feeds the lion?", "The keeper brings meat at noon.", "The keeper", "The lion feeds on antelopes."),
    *(Pair(f"zoo-{n:02}", f"Question {n}?", f"Passage {n}.", f"{n}.", f"Other text number {n}.") for n in range(2, 12)),
    Pair("zoo-12", "Is it open?", "Monday is a day of rest.", "Monday", "A lion stands at the gate."),
]


def numbered(count: int, words: int = 50) -> Filler:
    """Paragraphs, each a source, that all differ."""
    return Filler([[" ".join([f"p{number}", *["word"] * (words - 1)])] for number in range(count)])


@given(st.lists(WORD, min_size=1, max_size=20).map(" ".join), st.integers(0, 1000))
def test_the_answer_stands_where_the_document_says(passage: str, seed: int) -> None:
    answer = passage.rsplit(maxsplit=1)[-1]
    document = bury(f"{passage} end", answer, numbered(200), np.random.default_rng(seed))
    assert document.text[document.start : document.end] == answer
    assert f"{passage} end" in document.text.split("\n\n")
    assert 1_000 < len(document.text.split()) < 4_600


def test_the_same_seed_buries_at_the_same_place() -> None:
    first, second, other = (bury("The end.", "end", numbered(200), generator("a", name)) for name in ("x", "x", "y"))
    assert first == second
    assert first != other


def test_paragraphs_of_a_source_stay_in_order_and_none_comes_twice() -> None:
    drawn = filler_of(["a b\n\nc d\ne f", "g h"]).paragraphs(8, generator("seed"))
    assert sorted(drawn) == ["a b", "c d", "e f", "g h"]
    assert [paragraph for paragraph in drawn if paragraph != "g h"] == ["a b", "c d", "e f"]


def test_paragraphs_that_are_too_long_are_left_out() -> None:
    assert filler_of(["word " * 401 + "\nshort one"]).sources == [["short one"]]


def test_too_little_filler_is_an_error() -> None:
    with pytest.raises(ValueError, match="the filler has 100 words, and 101 are needed"):
        numbered(2).paragraphs(101, generator("seed"))


def test_distractors_are_the_lure_and_what_shares_words_first() -> None:
    texts = distractors(PAIRS[0], PAIRS, generator("seed"))
    assert texts[:2] == ["The lion feeds on antelopes.", "A lion stands at the gate."]
    assert len(set(texts)) == 9
    assert PAIRS[0].passage not in texts


def test_one_of_ten_candidates_answers() -> None:
    texts, gold = candidates(PAIRS[0], PAIRS, numbered(200))
    assert len(texts) == 10
    assert [PAIRS[0].passage in text for text in texts] == [place == gold for place in range(10)]
