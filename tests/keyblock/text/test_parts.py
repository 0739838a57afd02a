"""Texts that are read in parts are read as a whole, whatever they say."""

from functools import cache, partial
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock.text import reader as reader_module
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.characters import ends_word, is_dropped
from keyblock.text.parts import LastCut, behind_words, nowhere, parts
from keyblock.text.reader import PART, Reader
from keyblock.text.tokenizer import Tokenizer
from tests.keyblock.text.texts import PIECES, SIGMA, SPELT, assert_alike, cuts, slowly
from tests.support.compiled import need_compiled

TEXTS = st.one_of(
    st.lists(st.text(SPELT, max_size=40), max_size=12).map("".join),
    st.text(st.characters(codec=None), max_size=300),
    st.lists(
        st.sampled_from([*PIECES, SIGMA, "x" * 30, "x" * 90, "中" * 70, "a،", "a\x1cb" * 30, "a.\u0301" * 40]), max_size=40
    ).map(" ".join),
    st.lists(st.sampled_from(["a", ".", "\u200b", "\u0301", "\u093e", "\ufffd", "क"]), max_size=300).map("".join),
    st.lists(st.sampled_from(["x" * 99, "中", "。", "،", "_", "\u0301", "\ufffd", "\x1c", "\ud800"]), max_size=40).map("".join),
)


ENGLISH = Analyzer(AnalyzerConfig())


@pytest.fixture(scope="module", params=["plain", "compiled"])
def reader(request: pytest.FixtureRequest, tokenizer: Tokenizer) -> Reader:
    if request.param == "compiled":
        need_compiled()
    return Reader(tokenizer, ENGLISH, compiled=request.param == "compiled")


@pytest.fixture(scope="module")
def ends(tokenizer: Tokenizer) -> LastCut:
    return behind_words(*(cache(partial(ask, tokenizer.backend)) for ask in (ends_word, is_dropped)))


@given(TEXTS, st.integers(1, 9), st.sampled_from([2, 10, 40, 170]))
@example("x" * 170 + "." + "\u0301" + "y" * 200, 3, 170)
@example("x" * 130 + "\x1c" + "y" * 60 + "." + "z" * 200, 3, 170)
@example("river " * 60 + "中" * 100 + " stone" * 60, 9, 170)
def test_parts_make_no_difference(reader: Reader, tokenizer: Tokenizer, text: str, length: int, most: int) -> None:
    text = text + " the end of it" * 5
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(reader_module, "PART", most)
        (found,) = reader.read([text])
    (slow,) = slowly([text], tokenizer, ENGLISH)
    assert_alike(found, slow, cuts(len(slow.ids), length, 3))


@given(TEXTS, st.integers(2, 200))
def test_parts_cover_a_text(ends: LastCut, text: str, most: int) -> None:
    found = list(parts(text, ends, most))
    bounds = [part.start for part in found] + [found[-1].end]
    assert (bounds[0], bounds[-1]) == (0, len(text))
    assert all(before.end == after.start for before, after in pairwise(found))
    assert all(part.start < part.end for part in found) or text == ""
    assert all(text[part.end - 1] == " " for part in found[:-1] if part.at_space)


@pytest.mark.parametrize("between", [" ", "中", "。", "،", "\t", ".", ".\u200b", ".\u0301", "\u00ad.\u200b\ufffd", "\u093e."])
def test_no_step_is_long_where_there_is_any_place_to_cut(ends: LastCut, between: str) -> None:
    assert max(end - start for start, end, _ in parts(f"{'x' * 100}{between}" * 5000, ends, PART)) <= PART


def test_parts_by_eye(ends: LastCut) -> None:
    """Behind a space where there is one, else behind what is no part of a word, and never within one."""
    text = "the river, bridges.中 unaffable"
    assert [text[start:end] for start, end, _ in parts(text, ends, 12)] == ["the river, ", "bridges.中 ", "unaffable"]
    assert [text[start:end] for start, end, _ in parts(text, ends, 9)] == ["the ", "river, ", "bridges.中", " unaffable"]
    assert [text[start:end] for start, end, _ in parts(text, nowhere, 9)] == [text]


def test_reading_pauses_after_each_part_and_may_be_stopped(reader: Reader) -> None:
    text = "The river flooded the bridge. " * 20_000
    seen: list[int] = []
    reader.read(["short", text, "x"], seen.append)
    assert sum(seen) == len(text) + 6
    assert max(seen) <= PART

    def stop(n_chars: int) -> None:
        seen.append(n_chars)
        raise TimeoutError

    seen.clear()
    with pytest.raises(TimeoutError):
        reader.read([text * 6], stop)
    assert len(seen) == 1
