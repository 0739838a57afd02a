"""Scripts of characters and of texts, and which characters are parts of words."""

import re
import sys
import unicodedata
from pathlib import Path

import pytest

from keyblock.text.alphabets import Alphabets, TrainedOn, _kind, _surfaces, script_of
from keyblock.text.scripts import IGNORABLE, UNSPACED, joining, spaced_letters
from keyblock.text.tokenizer import Tokenizer
from tests.keyblock.text.trained_tokenizers import KINDS, trained

NAMES = (
    "CJK UNIFIED",
    "HIRAGANA LETTER",
    "KATAKANA LETTER",
    "HANGUL SYLLABLE",
    "THAI",
    "LAO LETTER",
    "KHMER LETTER",
    "MYANMAR",
)


def test_scripts_without_spaces_are_those_of_unicodes_names() -> None:
    unspaced = re.compile(f"[{UNSPACED}]")
    for code in range(sys.maxunicode + 1):
        character = chr(code)
        if unicodedata.name(character, "").startswith(NAMES) and character.isalpha():
            assert unspaced.match(character), unicodedata.name(character)
    assert not any(unspaced.match(character) for character in "aéжاहσא09_ -、。「」・")


def test_letters_and_their_marks_are_parts_of_words() -> None:
    letters = re.compile(f"[{spaced_letters()}]+")
    for word in ("naïve", "nai\u0308ve", "हिन्दी", "مُحَمَّد", "B52", "a_b", "soft\u00adhyphen", "ⴰⵎⴰⵣⵉⵖ"):
        assert letters.fullmatch(word), word
    assert not any(letters.match(character) for character in " .,'’-।،؟。ไ漢\u200b")


def test_ignorable_characters_are_formats_and_selectors() -> None:
    ignorable = re.compile(f"[{IGNORABLE}]")
    for code in range(sys.maxunicode + 1):
        character, category = chr(code), unicodedata.category(chr(code))
        if ignorable.match(character):
            assert category in ("Cf", "Cn") or "VARIATION SELECTOR" in unicodedata.name(character) or code == 0x34F


def test_what_joins_the_character_in_front() -> None:
    """No other characters join: any other two are composed separately."""
    assert {"\u0301", "\u3099", "\u1161", "\u11a8"} <= joining()
    assert not joining() & set("aé中\u0e49\uac00")
    for first in "aeιकか\u1100\uac00":
        met = {chr(code) for code in range(0x30000) if len(unicodedata.normalize("NFKC", first + chr(code))) == 1}
        assert {c for c in met if unicodedata.normalize("NFKC", c) == c} <= joining()


@pytest.fixture(scope="module")
def english(tokenizer: Tokenizer) -> Alphabets:
    return Alphabets(tokenizer, TrainedOn(languages=("en",), scripts=("latin",)))


def test_scripts_of_characters() -> None:
    characters = "aéЖαعאह\u093f漢かカ한ไ1.\u0301ªʰ"
    expected = "latin latin cyrillic greek arabic hebrew devanagari devanagari han hiragana katakana hangul thai"
    assert [script_of(character) for character in characters] == [*expected.split(), None, None, None, None, None]


@pytest.mark.parametrize(
    ("text", "foreign"),
    [
        ("The river runs through Köln.", False),
        ("Der Fluss fließt durch Köln.", False),
        ("Река течёт через Кёльн.", True),
        ("東京は日本の首都。", True),
        ("यह एक नदी है।", True),
        ("กรุงเทพมหานครเป็นเมืองหลวง และ", True),
        ("The angle π in 東京 is 3.14 for the whole river", False),
        ("π", False),
        ("2024-01-01: 100 %", False),
        ("", False),
    ],
)
def test_texts(tokenizer: Tokenizer, english: Alphabets, text: str, foreign: bool) -> None:
    assert english.foreign(tokenizer.ids(text)) is foreign


def test_what_was_learned_is_not_foreign(tokenizer: Tokenizer) -> None:
    both = Alphabets(tokenizer, TrainedOn(languages=("en", "ru"), scripts=("latin", "cyrillic")))
    assert not both.foreign(tokenizer.ids("Река течёт через Кёльн."))
    assert both.foreign(tokenizer.ids("東京は日本の首都。"))


@pytest.mark.parametrize("name", KINDS)
def test_tokens_are_of_the_script_that_they_decode_to(name: str, tmp_path: Path) -> None:
    tokenizer, scripts = trained(name, tmp_path), frozenset({"latin"})
    ids = sorted(tokenizer.backend.get_vocab().values())
    decoded = tokenizer.backend.decode_batch([[token] for token in ids], skip_special_tokens=False)
    surfaces = _surfaces(tokenizer)
    assert [_kind(surfaces[token], scripts) for token in ids] == [_kind(surface, scripts) for surface in decoded]
