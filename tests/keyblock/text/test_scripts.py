"""Which characters are parts of words, against what Unicode calls them."""

import re
import sys
import unicodedata

from keyblock.text.scripts import IGNORABLE, UNSPACED, joining, spaced_letters

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
