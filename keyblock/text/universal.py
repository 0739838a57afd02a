"""Terms of any language: words in scripts with spaces between words, else pairs of neighbouring characters.

Words are those of Unicode's UAX #29, but end at apostrophes and full stops inside, so that "l'eau" matches "eau" and "Tesla's"
matches "Tesla". There is no stemming, and there are no stop words.
"""

import re
from collections.abc import Iterator
from functools import cache

from keyblock.text.normalization import caseless, folded
from keyblock.text.scripts import IGNORABLE, UNSPACED, spaced_letters

STRETCH = 1024  # the most characters normalised at a time: sorting their marks may take quadratic time
HEAD = 256  # the most characters of a word that are read: longer words are data


@cache
def _pieces() -> re.Pattern[str]:
    """Words, and stretches of unspaced scripts (group 1)."""
    return re.compile(rf"([{UNSPACED}][{UNSPACED}{IGNORABLE}]{{0,{STRETCH - 1}}})|[{spaced_letters()}]+")


def pieces(text: str) -> Iterator[str]:
    """The pieces that `spelling` turns into terms, in order: words unchanged, and pairs of characters already normalised.

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


def spelling(piece: str) -> str:
    """The term of a piece; empty for a piece with only ignorable characters."""
    return folded(caseless(piece[:HEAD]))
