"""A text as the tokenizer and the analyzer read it: what blocks of it are."""

import numpy as np
import pytest

from keyblock.text.analyzer import Analyzer, AnalyzerConfig, term_key
from keyblock.text.reading import AT_ONCE, concatenated, encoded, terms_between
from keyblock.text.tokenizer import Tokenizer

TEXT = "The river  floods, and\nbridges fall."
ANALYZER = Analyzer(AnalyzerConfig())


def test_blocks_of_a_text(tokenizer: Tokenizer) -> None:
    reading = encoded(TEXT, tokenizer.encode([TEXT])[0], ANALYZER)
    assert len(reading.ids) == 8
    heads, tails = reading.places()
    tokens = [TEXT[head:tail] for head, tail in zip(heads, tails, strict=True)]
    assert tokens == ["The", "river", "floods", ",", "and", "bridges", "fall", "."]
    starts, ends = reading.offsets(np.asarray([[0, 3], [3, 8], [1, 2]], dtype=np.int32))
    assert [TEXT[start:end] for start, end in zip(starts, ends, strict=True)] == [
        "The river  floods",
        ", and\nbridges fall.",
        "river",
    ]
    terms = reading.terms(starts, ends)
    assert terms.bounds.tolist() == [0, 2, 4, 5]
    assert terms.keys.tolist() == [term_key(term) for term in ("river", "flood", "bridg", "fall", "river")]


def test_a_text_without_a_token(tokenizer: Tokenizer) -> None:
    reading = encoded(" ", tokenizer.encode([" "])[0], ANALYZER)
    starts, ends = reading.offsets(np.zeros((0, 2), dtype=np.int32))
    assert (reading.ids.shape, starts.shape, ends.shape) == ((0,), (0,), (0,))
    assert reading.terms(starts, ends).bounds.tolist() == [0]


def test_nothing_else_is_kept_of_an_encoding(tokenizer: Tokenizer) -> None:
    """Prepared documents are cached by their own size."""
    reading = encoded(TEXT, tokenizer.encode([TEXT])[0], ANALYZER)
    assert [array.base for array in (reading.ids, *reading.places())] == [None] * 3


def test_terms_of_many_blocks_are_found_in_steps() -> None:
    text = "river " * (3 * AT_ONCE)
    starts = np.arange(0, len(text), 6, dtype=np.int32)
    steps: list[int] = []
    terms = terms_between(text, starts, starts + np.int32(5), ANALYZER, steps.append)
    assert (len(terms.keys), steps) == (3 * AT_ONCE, [0, 0, 0])

    def stop(_n_chars: int) -> None:
        raise TimeoutError

    with pytest.raises(TimeoutError):
        terms_between(text, starts, starts + np.int32(5), ANALYZER, stop)


def test_blocks_in_a_row() -> None:
    terms = concatenated([[3, 1], [], np.asarray([4], dtype=np.int64)])
    assert (terms.keys.tolist(), terms.bounds.tolist()) == ([3, 1, 4], [0, 2, 2, 3])
    assert (terms.keys.dtype, terms.bounds.dtype) == (np.int64, np.int32)
    assert concatenated([]).keys.dtype == np.int64
