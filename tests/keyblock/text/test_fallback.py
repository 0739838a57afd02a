"""Stretches that compiled readers do not read: the tokenizer and the analyzer answer for them."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock.text.fallback import FILLER, tokens_of, tokens_of_words
from keyblock.text.tokenizer import Tokenizer
from tests.keyblock.text.trained_tokenizers import KINDS, trained

SPACES = "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u1680\u2028\u2029"
STRETCHES = st.one_of(
    st.text(st.characters(codec=None, exclude_categories=["Zs"], exclude_characters=SPACES), min_size=1),
    st.text("aáE\u0301\u0345中한Σİ.,[]#\x00\u200b\ufffd\ud800", min_size=1),
    st.sampled_from(["[SEP]", "[SEP]\u0301", "[UNK]", "##s", "unaffable", "don't", "x" * 101, "\u0301", "\x00"]),
)


@given(st.lists(STRETCHES, min_size=1, max_size=12))
@example(["\u0301", "\x00", "a", "\u0301b", "\ufeff", "b\u0301"])
def test_words_are_read_alike_alone_and_between_spaces(tokenizer: Tokenizer, words: list[str]) -> None:
    assert tokens_of_words(tokenizer, words) == tokens_of(tokenizer, words, [""] * len(words))


@pytest.mark.parametrize("name", KINDS)
def test_units_are_read_alike_alone_and_among_others(name: str, tmp_path: Path) -> None:
    """Behind the filler, whose tokens are nobody's, each is what it is in a text of its own; the first stands without."""
    tokenizer, units = trained(name, tmp_path), ["a", " the", "\n\nriver", "  stone", "\tbridge", " end"]
    if name == "first":
        units = ["a", " the", " river", " end"]  # it splits texts at spaces alone
    (together,) = tokenizer.encode(["".join(units)])
    starts = np.cumsum([0, *map(len, units[:-1])]).tolist()
    alone = zip(starts, tokens_of(tokenizer, units, ["", *[FILLER] * (len(units) - 1)]), strict=True)
    moved = [(token, start + head, start + tail) for start, tokens in alone for token, head, tail in tokens]
    assert moved == [(token, head, tail) for token, (head, tail) in zip(together.ids, together.offsets, strict=True)]
