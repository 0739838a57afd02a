"""Terms of any language: words where scripts put spaces between them, else pairs of neighbouring characters.

Words are found as Unicode's UAX #29 has it, but end at apostrophes and full stops inside, so that "l'eau" meets "eau" and "Tesla's"
meets "Tesla". Nothing is stemmed, and no word is left out.
"""

import re
from collections.abc import Iterator
from functools import cache

from keyblock.text.normalization import caseless, folded
from keyblock.text.scripts import IGNORABLE, UNSPACED, spaced_letters

STRETCH = 1024  # characters that are brought into one spelling at a time: sorting their marks may take their number squared
HEAD = 256  # characters of a word that are read: longer ones are data


@cache
def _pieces() -> re.Pattern[str]:
    """Words, and stretches of unspaced scripts (group 1)."""
    return re.compile(rf"([{UNSPACED}][{UNSPACED}{IGNORABLE}]{{0,{STRETCH - 1}}})|[{spaced_letters()}]+")


def pieces(text: str) -> Iterator[str]:
    """What `spelling` makes terms of, in order: words as they stand, and pairs of characters, already in one spelling.

    A stretch of one character is that character. It takes time in proportion to the text's length.
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
    """The term of a piece; empty for one of nothing but ignorable characters."""
    return folded(caseless(piece[:HEAD]))
