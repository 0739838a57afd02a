"""Texts that are read in parts are read as a whole, whatever they say."""

import time
from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock.text import parts as module
from keyblock.text import reader as reader_module
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.characters import ends_word
from keyblock.text.hashing import LONGEST
from keyblock.text.parts import PART, SHORTEST, LastCut, behind_words, parts
from keyblock.text.reader import Reader
from keyblock.text.reading import EncodedText
from keyblock.text.tokenizer import Tokenizer
from tests.keyblock.text.test_words import PIECES, SIGMA, SPELT, assert_alike, cuts

ODD = ["中" * 70, "a،", "a\x1cb" * 30, "a.\u0301" * 40]
SHORT = 40  # of a part, where tests cut short texts
TEXTS = st.one_of(
    st.lists(st.text(SPELT, max_size=40), max_size=12).map("".join),
    st.text(st.characters(codec=None), max_size=300),
    st.lists(
        st.sampled_from([*PIECES, SIGMA, "x" * 30, "x" * 90, "中" * 70, "a،", "a\x1cb" * 30, "a.\u0301" * 40]), max_size=40
    ).map(" ".join),
    st.lists(st.sampled_from(["x" * 99, "中", "。", "،", "_", "\u0301", "\ufffd", "\x1c", "\ud800"]), max_size=40).map("".join),
)


@pytest.fixture(scope="module")
def reader(tokenizer: Tokenizer) -> Reader:
    return Reader(tokenizer, Analyzer(AnalyzerConfig()))


@pytest.fixture
def ends(tokenizer: Tokenizer) -> LastCut:
    return behind_words(lambda character: ends_word(tokenizer.backend, character))


@pytest.fixture
def short_parts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PART", SHORTEST + SHORT)
        patch.setattr(reader_module, "PART", SHORTEST + SHORT)
        yield


@given(TEXTS, st.integers(1, 9))
@example("x" * 170 + "." + "\u0301" + "y" * 200, 3)
@example("x" * 130 + "\x1c" + "y" * 60 + "." + "z" * 200, 3)
@example("river " * 60 + "中" * 100 + " stone" * 60, 9)
@pytest.mark.usefixtures("short_parts")
def test_parts_make_no_difference(reader: Reader, tokenizer: Tokenizer, text: str, length: int) -> None:
    text = text + " the end of it" * 20
    (found,) = reader.read([text])
    (encoding,) = tokenizer.encode([text])
    slow = EncodedText(text, encoding, Analyzer(AnalyzerConfig()))
    np.testing.assert_array_equal(found.ids, slow.ids)
    assert_alike(found, slow, cuts(len(slow.ids), length, 3))


@given(TEXTS)
@pytest.mark.usefixtures("short_parts")
def test_parts_cover_a_text(tokenizer: Tokenizer, text: str) -> None:
    text *= 3
    found = list(parts(text, behind_words(lambda character: ends_word(tokenizer.backend, character))))
    bounds = [part.start for part in found] + [found[-1].end]
    assert bounds[0] == 0
    assert bounds[-1] == len(text)
    assert all(later - earlier >= SHORTEST > LONGEST for earlier, later in pairwise(bounds) if len(found) > 1)


@pytest.mark.parametrize("between", [" ", "中", "。", "،", "\t", "."])
def test_no_step_is_long_where_there_is_any_place_to_cut(ends: LastCut, between: str) -> None:
    assert max(end - start for start, end, _ in parts(f"{'x' * 100}{between}" * 5000, ends)) <= PART


def test_what_cannot_be_cut_is_one_part(ends: LastCut) -> None:
    assert list(parts("x" * 200_000, ends)) == [(0, 200_000, True)]


def test_reading_pauses_after_each_part_and_stops_where_it_is_told(reader: Reader) -> None:
    text = "The river flooded the bridge. " * 20_000
    seen: list[int] = []
    reader.read(["short", text, "x"], seen.append)
    assert sum(seen) == len(text) + 6
    assert max(seen) <= PART

    def stop(_n_chars: int) -> None:
        raise TimeoutError

    started = time.perf_counter()
    with pytest.raises(TimeoutError):
        reader.read([text * 6], stop)
    assert time.perf_counter() - started < 2
