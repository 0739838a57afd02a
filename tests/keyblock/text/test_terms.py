"""Runs of texts, by eye, and against the analyzer on every stretch of a text."""

import itertools

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.normalization import caseless, folded
from keyblock.text.read_words import ReadWords
from keyblock.text.terms import PAIRED, SYLLABLES, TermReader, paired_characters, run_places
from keyblock.text.universal import STRETCH
from tests.keyblock.text.test_words import PIECES, SPELT

NUMERALS, AGAIN = "\u3021\u3022", "\u3031"  # Hangzhou's, and a mark that repeats Kana: they stand in pairs, too
ANALYZERS = {
    name: Analyzer(config)
    for name, config in {
        "english": AnalyzerConfig(),
        "universal": AnalyzerConfig(name="universal"),
        "german": AnalyzerConfig(language="de"),
        "turkish": AnalyzerConfig(language="tr"),
    }.items()
}
READERS = {name: TermReader(analyzer) for name, analyzer in ANALYZERS.items()}
ASIAN = "東京都は日本の首都、人口1400万人。中文，句子！한국어 문장ー・ｶﾞが\u3099々〇ไทยน้ำ🚀·～（"
TEXTS = st.one_of(
    st.text(SPELT),
    st.text(ASIAN),
    st.text(f"{ASIAN} ab\u0301\u200d"),
    st.text(st.characters(codec=None)),
    st.lists(st.sampled_from([*PIECES, "東京都", "日本1ab語", "한국어는", "中" * 70, "ΑΣ", "ΑΣ'Α", "İ", "🚀中文"])).map(" ".join),
)


def codes_of(text: str) -> np.ndarray:
    return np.asarray([ord(character) for character in text], dtype=np.uint32)


def places(text: str, *, paired: bool) -> list[str]:
    heads, tails = run_places(codes_of(text), paired=paired)
    assert heads.dtype == tails.dtype == np.int32
    return [text[head:tail] for head, tail in zip(heads.tolist(), tails.tolist(), strict=True)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("東京都は 5日、", ["東京", "京都", "都は", "5", "日"]),
        ("한국어 a中b", ["한국", "국어", "a", "中", "b"]),
        ("the river's, a_b", ["the", "river", "s", "a_b"]),
        ("が\u3099京 東京", ["が\u3099京", "東京"]),  # the mark changes what stands before it
        ("🚀中文・京", ["中文", "京"]),
        (f"東{NUMERALS} 京", [f"東{NUMERALS}", "京"]),  # read anew: they are not in Kana or Han
        ("हिन्दी में 中文", ["हिन्दी", "में", "中文"]),
        ("", []),
        (" 、 ", []),
    ],
)
def test_runs_by_eye(text: str, expected: list[str]) -> None:
    assert places(text, paired=True) == expected


def test_an_analyzer_of_words_has_no_pairs() -> None:
    assert places("東京都は a中b", paired=False) == ["東京都は", "a中b"]


def test_stretches_that_the_analyzer_cuts_are_left_to_it() -> None:
    assert places("中" * STRETCH, paired=True) == ["中中"] * (STRETCH - 1)
    assert places(f"東京 {'中' * (STRETCH + 1)}", paired=True) == ["東京", "中" * (STRETCH + 1)]


@pytest.mark.parametrize("name", ANALYZERS)
@given(TEXTS, st.data())
@example("ΑΣ ΑΣ'Α 中" + "文" * 80, None)
@example(f"東{NUMERALS}京 か{AGAIN} {AGAIN}{AGAIN} a{NUMERALS}b", None)
def test_terms_of_any_stretch(name: str, text: str, data: st.DataObject | None) -> None:
    runs = READERS[name].runs(text, codes_of(text))
    none = np.zeros(0, np.int32)
    reading = ReadWords(text, ANALYZERS[name], none, none, none, runs)
    bounds = [(0, len(text))]
    if data is not None:
        cuts = sorted(data.draw(st.lists(st.integers(0, len(text)), max_size=6)))
        bounds += list(itertools.pairwise(cuts))
    bounds = [(start, end) for start, end in bounds if start < end]
    starts, ends = np.asarray(bounds, dtype=np.int32).reshape(-1, 2).T
    found = reading.terms(starts, ends)
    for i, (start, end) in enumerate(bounds):
        keys = found.keys[found.bounds[i] : found.bounds[i + 1]].tolist()
        assert keys == ANALYZERS[name].keys(text[start:end]), text[start:end]


def test_paired_characters_stand_for_themselves() -> None:
    paired = paired_characters()
    for code in [code for codes in (*PAIRED, SYLLABLES) for code in codes if paired[code]]:
        assert folded(caseless(chr(code))) == chr(code)
    assert paired[[ord(c) for c in "中文がー々한"]].all()
    assert not paired[[ord(c) for c in "aไ。、・ｶ\u3099"]].any()
