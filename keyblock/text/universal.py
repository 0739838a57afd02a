"""Terms of any language: words in scripts with spaces between words, else pairs of neighbouring characters, in one spelling.

Words are those of Unicode's UAX #29, but end at apostrophes and full stops inside, so that "l'eau" matches "eau" and "Tesla's"
matches "Tesla". Variants of a word have one spelling: composed or not, upper or lower case, full or half width, with or without
accents. Whether accents are dropped depends on the script. Latin and Greek letters lose them, since people leave them out when they
type. Russian й, Hindi's vowel signs and Japanese が are separate letters and stay. Arabic and Hebrew lose their vowel points.
"""

import re
import unicodedata
from collections.abc import Iterator
from functools import cache

from keyblock.text.scripts import IGNORABLE, UNSPACED, spaced_letters

STRETCH = 1024  # the most characters normalised at a time: sorting their marks may take quadratic time
_IGNORED = re.compile(f"[{IGNORABLE}]+")
_DROPPED = "\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u093c"  # dropped whatever precedes them
VANISHING = re.compile(f"[{_DROPPED}]")
"""A mark that `folded` drops after any letter."""
# Cyrillic: stress marks and the dots of ё; Arabic: vowel points, hamza and tatweel; Hebrew: points; Hindi: nukta
_MARKS = re.compile(f"(?<=[a-zα-ω])[\u0300-\u036f]+|(?<=[а-я])[\u0300\u0301]|(?<=е)\u0308|[{_DROPPED}]")
_ALIKE: dict[int, str | int | None] = {
    **str.maketrans("ıłøđħŧð", "ilodhtd"),
    ord("æ"): "ae",
    ord("œ"): "oe",
    ord("þ"): "th",
    # forms of yeh, keheh, teh marbuta and heh, which Arabic and Persian keyboards mix; Hindi's chandrabindu
    **str.maketrans("\u0649\u06cc\u06a9\u0629\u06c1\u0901", "\u064a\u064a\u0643\u0647\u0647\u0902"),
}


def caseless(text: str) -> str:
    """The text in one case, composed (NFKC), and without ignorable characters.

    >>> caseless("ＡＢＣ Straße")
    'abc strasse'
    """
    if text.isascii():
        return text.lower()
    return unicodedata.normalize("NFKC", _IGNORED.sub("", unicodedata.normalize("NFKC", text)).casefold())


def folded(text: str) -> str:
    """A caseless text without the accents that people of its script leave out.

    >>> folded("crème brûlée ёлка")
    'creme brulee елка'
    """
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", _MARKS.sub("", unicodedata.normalize("NFD", text)).translate(_ALIKE))


@cache
def _pieces() -> re.Pattern[str]:
    """Words, and stretches of unspaced scripts (group 1)."""
    return re.compile(rf"([{UNSPACED}][{UNSPACED}{IGNORABLE}]{{0,{STRETCH - 1}}})|[{spaced_letters()}]+")


def pieces(text: str) -> Iterator[str]:
    """The pieces of a text, in order: words unchanged, and pairs of characters in one spelling.

    A stretch of one character gives that character. The time is proportional to the text's length.
    """
    for found in _pieces().finditer(text):
        if found[1] is None:
            yield found[0]
            continue
        stretch = folded(caseless(found[1]))
        if len(stretch) < 2:
            yield stretch
        for start in range(len(stretch) - 1):
            yield stretch[start : start + 2]
