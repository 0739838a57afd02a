"""Texts of one long word: the token must be the one that the tokenizer gives for the whole text."""

import random

import numpy as np
import pytest

from keyblock.bundle import load_bundle
from keyblock.text.reader import PART, Reader
from keyblock.text.unbroken import STEP, Word, long_word
from service.settings import DEFAULT_BUNDLE

PIPELINE = load_bundle(DEFAULT_BUNDLE).pipeline
PIECES = (
    "\u200d",
    "\u0301",
    "\U0001f600",
    "a",
    "é",
    "각",
    "\ufeff",
    "Ж",
    "\u0e33",
    "ﬁ",
    "İ",
    "ẞ",
    "\u0345",
    "1",
    " ",
    "東",
    "!",
    "\u0600",
)


def test_it_is_what_the_tokenizer_finds_in_the_whole_text() -> None:
    draw, tokenizer, words, empty = random.Random(3), PIPELINE.tokenizer.backend, 0, 0
    for _ in range(2000):
        text = "".join(draw.choices(draw.sample(PIECES, draw.randrange(1, 7)), k=draw.randrange(1, 700)))
        found = long_word(tokenizer, text, step=draw.choice([16, 64, 256]))
        if found is None:
            continue
        whole = tokenizer.encode(text, add_special_tokens=False)
        assert [tuple(one) for one in found] == whole.offsets
        assert set(whole.ids) <= {tokenizer.token_to_id("[UNK]")}
        words, empty = words + bool(found), empty + (not found)
    assert words > 500
    assert empty > 50


@pytest.mark.parametrize("text", ["a" * 100, "a b" * 100, "!" * 200, "東" * 200, "\u200d \u200d" * 100])
def test_other_texts_are_left_to_the_tokenizer(text: str) -> None:
    found = long_word(PIPELINE.tokenizer.backend, text)
    assert found is None or found == [] == PIPELINE.tokenizer.backend.encode(text, add_special_tokens=False).ids


def test_a_long_text_that_cannot_be_cut_is_looked_at_in_steps() -> None:
    text, steps = "\U0001f600\u200d" * PART, list[int]()
    (reading,) = Reader(PIPELINE.tokenizer, PIPELINE.analyzer).read([text], steps.append)
    assert reading.ids.tolist() == [PIPELINE.tokenizer.backend.token_to_id("[UNK]")]
    assert np.stack(reading.places()).T.tolist() == [list(Word(0, len(text) - 1))]
    assert steps.count(0) > PART / STEP
    assert sum(steps) == len(text)
