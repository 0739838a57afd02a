"""Terms of any language."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.universal import STRETCH, pieces, spelling

UNIVERSAL = Analyzer(AnalyzerConfig(name="universal"))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The Rivers, running!", ["the", "rivers", "running"]),
        ("l'eau, Tesla's: “naïve”", ["l", "eau", "tesla", "s", "naive"]),
        ("東京都は首都。", ["東京", "京都", "都は", "は首", "首都"]),
        ("水 を", ["水", "を"]),
        ("2023年のVPN", ["2023", "年の", "vpn"]),
        ("हिन्दी की किताब।", ["हिन्दी", "की", "किताब"]),
        ("ไทย", ["ไท", "ทย"]),
        ("한국어를", ["한국", "국어", "어를"]),
        ("葛\U000e0100飾", ["葛飾"]),
        ("\u200f \ufe0f ...", []),
    ],
)
def test_terms(text: str, expected: list[str]) -> None:
    assert UNIVERSAL.terms(text) == expected


@pytest.mark.parametrize("text", ["Crème brûlée", "Việt Nam", "हिन्दी क़लम", "がぎぐげご", "한국어", "Ελλάδα", "ёлка"])
def test_however_it_is_composed(text: str) -> None:
    """What a Mac writes and what a web page has are the same to a reader."""
    forms = [unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC", "NFKD")]
    assert len({tuple(UNIVERSAL.terms(form)) for form in forms}) == 1
    assert UNIVERSAL.keys(forms[0]) == UNIVERSAL.keys(forms[1])


@given(st.text(st.characters(codec=None)), st.text(st.characters(codec=None)))
def test_any_text(text: str, other: str) -> None:
    """Words are found by themselves: what stands behind a space changes nothing."""
    assert UNIVERSAL.terms(f"{text} {other}") == UNIVERSAL.terms(text) + UNIVERSAL.terms(other)


@given(st.text())
def test_pieces_stand_in_the_text_or_are_in_one_spelling(text: str) -> None:
    for piece in pieces(text):
        assert piece in text or spelling(piece) == piece


def test_a_long_stretch_is_several() -> None:
    assert len(UNIVERSAL.terms("水" * 3 * STRETCH)) == 3 * (STRETCH - 1)
    assert UNIVERSAL.terms("x" * 1_000_000) == ["x" * 64]
