"""A text as the tokenizer reads it whole: what blocks of it are."""

import numpy as np

from keyblock.text.analyzer import Analyzer, AnalyzerConfig, term_key
from keyblock.text.reading import EncodedText
from keyblock.text.tokenizer import Tokenizer

TEXT = "The river  floods, and\nbridges fall."


def test_blocks_of_a_text(tokenizer: Tokenizer) -> None:
    reading = EncodedText(TEXT, tokenizer.encode([TEXT])[0], Analyzer(AnalyzerConfig()))
    assert len(reading.ids) == 8
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
    reading = EncodedText(" ", tokenizer.encode([" "])[0], Analyzer(AnalyzerConfig()))
    starts, ends = reading.offsets(np.zeros((0, 2), dtype=np.int32))
    assert (reading.ids.shape, starts.shape, ends.shape) == ((0,), (0,), (0,))
    assert reading.terms(starts, ends).bounds.tolist() == [0]
