"""How to find words in scripts: which scripts put no spaces between words, and which characters belong to a word."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache

# Han, Kana, Bopomofo, Hangul (its words end in particles), Thai, Lao, Myanmar, Khmer, and small neighbours of Thai
UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u1950-\u19ff\u1a20-\u1aaf\u3005-\u3007\u3021-\u3029\u3031-\u3035\u3038-\u303c"
    "\u3041-\u309f\u30a1-\u30fa\u30fc-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\ua48f\ua960-\ua97f\ua9e0-\ua9ff\uaa60-\uaadf"
    "\uac00-\ud7ff\uf900-\ufaff\uff66-\uffdc\U00016fe0-\U00018dff\U0001aff0-\U0001b16f\U00020000-\U0003fffd"
)
IGNORABLE = (  # characters that only change how others look: Unicode's formats, joiners and variation selectors
    "\u00ad\u034f\u0600-\u0605\u061c\u06dd\u070f\u0890\u0891\u08e2\u180b-\u180f\u200c-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f"
    "\ufeff\ufff9-\ufffb\U000e0001\U000e0020-\U000e007f\U000e0100-\U000e01ef"
)
MEDIALS_AND_FINALS = (*range(0x1161, 0x1176), *range(0x11A8, 0x11C3))  # of Korean
ASSIGNED = range(0x20000)  # code points that may be a part of words of scripts with spaces


@cache
def spaced_letters() -> str:
    r"""The characters of words in scripts with spaces, as a regular expression's set without its brackets.

    These are letters, digits and underscores, as in Python's ``\w``, and the marks on them, which ``\w`` leaves out.
    """
    unspaced = re.compile(f"[{UNSPACED}]")
    return "".join(_ranges(code for code in ASSIGNED if _in_words(chr(code)) and not unspaced.match(chr(code)))) + IGNORABLE


@cache
def joining() -> frozenset[str]:
    """Characters that may merge with the character before them when a text is composed."""
    parts = (unicodedata.decomposition(chr(code)).split() for code in range(0x30000))
    second = {chr(int(pair[1], 16)) for pair in parts if len(pair) == 2 and pair[0][0] != "<"}
    return frozenset(second | set(map(chr, MEDIALS_AND_FINALS)))


def _in_words(character: str) -> bool:
    return character.isalnum() or character == "_" or unicodedata.category(character)[0] == "M"


def _ranges(codes: Iterable[int]) -> Iterator[str]:
    """Ascending code points as ranges of a set."""
    start = end = -2
    for code in codes:
        if code != end + 1:
            if end >= 0:
                yield f"\\U{start:08x}-\\U{end:08x}"
            start = code
        end = code
    if end >= 0:
        yield f"\\U{start:08x}-\\U{end:08x}"
