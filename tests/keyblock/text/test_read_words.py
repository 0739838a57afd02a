"""Readings of a text's words, and of its parts."""

import numpy as np

from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.read_words import ReadWords, Runs, encoded, joined
from keyblock.text.tokenizer import Tokenizer

ANALYZER = Analyzer(AnalyzerConfig())


def ints(*values: int) -> np.ndarray:
    return np.asarray(values, dtype=np.int32)


def reading(text: str, words: list[str]) -> ReadWords:
    """A text of which each word is a token and a run."""
    heads = ints(*(text.index(word) for word in words))
    tails = (heads + [len(word) for word in words]).astype(np.int32)
    keys = np.asarray([(ANALYZER.keys(word) or [0])[0] for word in words], dtype=np.int64)
    return ReadWords(text, ANALYZER, np.arange(len(words), dtype=np.int32), heads, tails, Runs(heads, tails, keys))


def test_terms_of_blocks() -> None:
    """A stop word has none; a block that begins within a word has the terms of what it holds."""
    found = reading("the river bridges", ["the", "river", "bridges"])
    starts, ends = found.offsets(np.asarray([[0, 2], [2, 3]]))
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == [(0, 9), (10, 17)]
    assert found.terms(starts, ends).keys.tolist() == ANALYZER.keys("river bridge")
    assert found.terms(ints(6), ints(17)).keys.tolist() == ANALYZER.keys("ver bridges")


def test_parts_are_joined() -> None:
    first, second = reading("a river ", ["a", "river"]), reading("floods stone", ["floods", "stone"])
    found = joined("a river floods stone", [first, second])
    assert found.ids.tolist() == [0, 1, 0, 1]
    assert [found.text[head:tail] for head, tail in zip(*found.places(), strict=True)] == ["a", "river", "floods", "stone"]
    assert found.terms(ints(0), ints(20)).keys.tolist() == ANALYZER.keys(found.text)


def test_what_the_tokenizer_read_alone(tokenizer: Tokenizer) -> None:
    text = "river " * 20
    (encoding,) = tokenizer.encode([text])
    found = encoded(text, encoding, ANALYZER)
    assert found.ids.tolist() == encoding.ids
    assert found.terms(ints(0, 6), ints(11, 14)).keys.tolist() == [*ANALYZER.keys("river river"), *ANALYZER.keys("river ri")]
