"""One spelling: cases that a reader can judge, and any text composed or not."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.text.normalization import caseless, folded


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Straße", "strasse"),
        ("ＡＢＣ１２３", "abc123"),
        ("ﬁne soft\u00adhyphen", "fine softhyphen"),
        ("ΟΔΟΣ οδός", "οδοσ οδόσ"),
        ("ｶﾞﾗｽ", "ガラス"),
        ("می\u200cخواهم", "میخواهم"),
    ],
)
def test_looks_are_left_out(text: str, expected: str) -> None:
    assert caseless(text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("crème brûlée", "creme brulee"),
        ("οδόσ", "οδοσ"),
        ("ещё чай", "еще чай"),  # й is a letter of its own
        ("нао\u0301ми їжак", "наоми їжак"),
        ("مُحَمَّد أحمد", "محمد احمد"),
        ("שָׁלוֹם", "שלום"),
        ("हिन्दी की", "हिन्दी की"),
        ("がぎぐ", "がぎぐ"),
        ("tiếng việt", "tieng viet"),
        ("ısı łódź ærø", "isi lodz aero"),
    ],
)
def test_accents_go_where_readers_leave_them_out(text: str, expected: str) -> None:
    assert folded(text) == expected


@given(st.text())
def test_composed_and_decomposed_texts_meet(text: str) -> None:
    forms = {folded(caseless(unicodedata.normalize(form, text))) for form in ("NFC", "NFD")}
    assert len(forms) == 1
