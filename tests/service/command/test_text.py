"""Highlights: whatever the text, offsets are valid, whole characters are marked, and nothing is lost or obeyed."""

import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from rich.cells import cell_len

from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from service.command.text import Highlighter, in_a_line, visible

ANALYZER = Analyzer(AnalyzerConfig())
QUERY = "the rivers of Wien, İstanbul and 東京都 e\u0301tat النهر 👨‍👩‍👧 Straße"
WORDS = "river Rivers Wien İSTANBUL istanbul 東京都 e\u0301tat état النهر 👨‍👩‍👧 STRASSE Straße 🏳️‍🌈 한국어".split()
TEXT = st.lists(
    st.sampled_from([*WORDS, " ", "\n", "\u200d", "\u0301", "\u0345", "\u202e", "\ud800", "\x1b[31m", "\x9b", "ﬁ", "ǅ", "_", "-"])
    | st.text(st.characters(codec=None), max_size=8),
    max_size=60,
).map("".join)


@given(TEXT, st.sampled_from([QUERY, "river", "", "\u0301"]) | TEXT)
@example("東京都\u200driver", "rivers of 東京都")
def test_offsets_are_valid(text: str, query: str) -> None:
    spans = Highlighter(ANALYZER, query).spans(text)
    assert all(0 <= start < end <= len(text) for start, end in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(spans))
    assert all(end == len(text) or not unicodedata.category(text[end]).startswith("M") for _, end in spans)


@given(TEXT)
def test_what_is_shown_is_harmless_and_as_long(text: str) -> None:
    shown = visible(text)
    assert len(shown) == len(text)
    assert not any(unicodedata.category(character) in ("Cc", "Cs") for character in shown)
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u2028\u2029")
    assert all(was == now for was, now in zip(text, shown, strict=True) if was.isalnum() or unicodedata.category(was)[0] in "MS")
    assert shown.encode().decode() == shown
    assert cell_len(in_a_line(text)) <= 2 * len(text)


@pytest.mark.parametrize(
    ("query", "text", "found"),
    [
        ("river banks", "The Rivers' bank; a riverbank.", ["Rivers", "bank"]),
        ("the of and", "the end of it", []),
        ("İstanbul", "from İSTANBUL, İstanbul", ["İSTANBUL", "İstanbul"]),
        ("cafe\u0301", "un cafe\u0301s", ["cafe\u0301s"]),
        ("東京都", "東京都 は", ["東京都"]),
        ("النهر", "غمر النهر الجسر", ["النهر"]),
        ("東京の川", "隅田川は東京都を流れる川。", ["東京"]),
        ("川", "山と川", []),
        ("川", "山 川 山", ["川"]),
        ("नदी कहाँ है", "यह नदी बड़ी है", ["नदी", "है"]),
        ("แม่น้ำ", "ที่แม่น้ำเจ้าพระยา", ["แม่น้ำ"]),
        ("the river", "the river and the 川", ["river"]),
        ("στη Βιέννη", "η βιεννη", ["βιεννη"]),
    ],
)
def test_the_words_that_the_selector_matches(query: str, text: str, found: list[str]) -> None:
    assert [text[start:end] for start, end in Highlighter(ANALYZER, query).spans(text)] == found


def test_one_line() -> None:
    assert in_a_line("a\n\n\tb\x1b[2J\u2028c\ud800") == "a b␛[2J c\ufffd"
