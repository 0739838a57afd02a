"""Compiled readings: terms are looked up, and parts are put together."""

import numpy as np
import pytest

from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.compiled import LONGEST, CompiledReading, Runs, joined
from keyblock.text.reading import Reading

ANALYZER = Analyzer(AnalyzerConfig())


def ints(*values: int) -> np.ndarray:
    return np.asarray(values, dtype=np.int32)


def reading(text: str, words: list[str]) -> CompiledReading:
    """A text of which each word is a token and a run."""
    heads = ints(*(text.index(word) for word in words))
    tails = (heads + [len(word) for word in words]).astype(np.int32)
    keys = np.asarray([(ANALYZER.keys(word) or [0])[0] if len(word) <= LONGEST else 0 for word in words], dtype=np.int64)
    return CompiledReading(text, ANALYZER, np.arange(len(words), dtype=np.int32), heads, tails, Runs(heads, tails, keys))


def test_terms_of_blocks() -> None:
    """A stop word has none; a block that begins within a word has the terms of what it holds."""
    found = reading("the river bridges", ["the", "river", "bridges"])
    starts, ends = found.offsets(np.asarray([[0, 2], [2, 3]]))
    assert list(zip(starts.tolist(), ends.tolist(), strict=True)) == [(0, 9), (10, 17)]
    assert found.terms(starts, ends).keys.tolist() == ANALYZER.keys("river bridge")
    assert found.terms(ints(6), ints(17)).keys.tolist() == ANALYZER.keys("ver bridges")


def test_long_runs_are_read_by_the_analyzer() -> None:
    long = "x" * (LONGEST + 1)
    steps: list[int] = []
    found = reading(f"a river {long} fell", ["a", "river", long, "fell"])
    assert found.terms(ints(0, 2), ints(len(found.text), 7), steps.append).keys.tolist() == ANALYZER.keys(
        f"river {long} fell river"
    )
    assert steps == [0]


@pytest.mark.parametrize("apart", [True, False])
def test_parts_are_joined(apart: bool) -> None:
    """Where runs may reach from one into another, no run is looked up."""
    first, second = reading("a river ", ["a", "river"]), reading("floods stone", ["floods", "stone"])
    found = joined("a river floods stone", [first, second], apart=apart)
    assert isinstance(found, CompiledReading) == apart
    assert found.ids.tolist() == [0, 1, 0, 1]
    assert [found.text[head:tail] for head, tail in zip(*found.places(), strict=True)] == ["a", "river", "floods", "stone"]
    assert found.terms(ints(0, 10), ints(20, 14)).keys.tolist() == ANALYZER.keys("a river floods stone oods")


def test_a_part_that_the_tokenizer_read() -> None:
    """Terms are then found in the text, whatever is known of other parts."""
    first, second = reading("a river ", ["a", "river"]), Reading("floods", ANALYZER, ints(7), ints(0), ints(6))
    found = joined("a river floods", [first, second], apart=True)
    assert type(found) is Reading
    assert (found.ids.tolist(), found.heads.tolist(), found.tails.tolist()) == ([0, 1, 7], [0, 2, 8], [1, 7, 14])
    assert found.terms(ints(0), ints(14)).keys.tolist() == ANALYZER.keys(found.text)
    assert found.heads.dtype == found.tails.dtype == np.int32
