"""One spelling for variants of a word: composed or not, upper or lower case, full or half width, with or without accents.

Whether accents are dropped depends on the script. Latin and Greek letters lose them, since people leave them out when they type.
Russian й, Hindi's vowel signs and Japanese が are separate letters and stay. Arabic and Hebrew lose their vowel points.
"""

import re
import unicodedata

from keyblock.text.scripts import IGNORABLE

_IGNORED = re.compile(f"[{IGNORABLE}]+")
_DROPPED = "\u0591-\u05c7\u0610-\u061a\u0640\u064b-\u065f\u0670\u093c"  # dropped whatever precedes them
VANISHING = re.compile(f"[{_DROPPED}]")
"""A mark that `folded` drops after any letter."""
# Cyrillic: stress marks and the dots of ё; Arabic: vowel points, hamza and tatweel; Hebrew: points; Hindi: nukta
_MARKS = re.compile(f"(?<=[a-zα-ω])[\u0300-\u036f]+|(?<=[а-я])[\u0300\u0301]|(?<=е)\u0308|[{_DROPPED}]")
_ALIKE = str.maketrans(
    {
        "ı": "i",
        "ł": "l",
        "ø": "o",
        "đ": "d",
        "ħ": "h",
        "ŧ": "t",
        "æ": "ae",
        "œ": "oe",
        "þ": "th",
        "ð": "d",
        # forms of yeh, keheh, teh marbuta and heh, which Arabic and Persian keyboards mix; Hindi's chandrabindu
        "\u0649": "\u064a",
        "\u06cc": "\u064a",
        "\u06a9": "\u0643",
        "\u0629": "\u0647",
        "\u06c1": "\u0647",
        "\u0901": "\u0902",
    }
)


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
