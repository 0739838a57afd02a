"""Texts as a person reads them, each as long as it was, so that places in it stay the same.

Stretches that are no language become ends of paragraphs and spaces: data URIs, base64, long URLs and words, bare numbers, hex dumps
and minified code. A hash or a usual URL stays, since people search for them. Characters get their plain spelling: see
`keyblock.text.tokenizer.respelled`.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

ROW = 64  # characters that are looked at together
FEWEST_SPACES, MOST_LOW = 2, 31  # of a row of prose; the low code points are spaces, digits and most marks
LOW, NO_SPACES = 64, 0xE00  # from Thai on, words need no spaces
MOST_CODE_SPACES, FEWEST_NUMBER, FEWEST_HEX = 5, 62, 48  # of a row of data with many low ones; all others are language
LONGEST = 128  # characters; what is shorter may be searched for
AROUND = 256  # characters before and after odd rows that are looked at, too
TOGETHER, AT_ONCE = 8, 1024  # rows that are looked at together: with so many others between them, and so many at most
_RUN = r"[^\s,;|\"(){}\[\]<>\u0e00-\U0010ffff]"  # of a word, a URL, base64: records and lists have the other marks
_CODE = r"(?!\S*\":)(?=(?:[^\s(){};=&]*+[(){};=&]){2})\S++"  # a record in JSON is none
_HEX = r"(?:[0-9A-Fa-f]{2,16}:?(?!\S)[ \t]*+)"
_LETTER = r"(?=(?:[\da-fA-F]+:?[ \t]++){0,6}\d*[a-fA-F])"  # else they are numbers
_STRETCH = re.compile(
    rf"(?P<run>(?:data:[\w/+.;=-]{{0,80}},)?(?<!{_RUN}){_RUN}{{{LONGEST},}}+)"
    r"|(?<!\S)(?:"
    r"(?P<lines>[\w+/=-]{40,}+(?!\S)(?:\s++[\w+/=-]{24,}+(?!\S))++(?:\s++[\w+/]*=++(?!\S))?)"
    rf"|(?P<hex>(?:{_LETTER}{_HEX}{{7,}}+[^\n]{{0,48}}(?:\n|\Z)){{2,}}"
    rf"|{_LETTER}{_HEX}{{64,}}+)"  # else the search would begin again at each byte of a long line
    r"|(?P<numbers>(?=\S*\d)(?:[\d.,:;/%+*^|()\[\]eE-]++(?!\S)\s*+)++)"
    rf"|(?P<code>{_CODE}(?:\s++(?:\S{{1,40}}+\s++){{0,3}}?{_CODE})*+)"
    r")"
)
_NUMBER, _DUMP = (
    np.array([code <= ord(" ") or chr(code) in characters for code in range(128)])
    for characters in ("0123456789.,:;/%+*^|()[]eE-", "0123456789abcdefABCDEF:")
)
_ALONE = re.compile(r"\s*(?=\S*\d)[A-Za-z0-9+/=_-]{32,}\s*")
_SPELLED = re.compile(r"[\uff10-\uff19\uff21-\uff3a\uff41-\uff5a\u200b\u2060\ufeff]")


class Oddity(NamedTuple):
    """What is odd about one of several texts.

    Attributes:
        number: the text's.
        rows: shape (n_rows,), numbers of its rows of ROW characters that are unlike prose; a last, shorter row is none.
        spelled: whether it has characters that may have a plainer spelling.
    """

    number: int
    rows: NDArray[np.int32]
    spelled: bool


def oddities(texts: Sequence[str]) -> Iterator[Oddity]:
    """The oddities of texts; prose has none. `keyblock_native` finds the same."""
    for number, text in enumerate(texts):
        codes = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
        rows = codes[: len(codes) // ROW * ROW].reshape(-1, ROW)
        spaces = ((rows <= ord(" ")) | (rows >= NO_SPACES)).sum(axis=1)
        known = np.minimum(rows, 127)
        numbers, dump = _NUMBER[known].sum(axis=1) >= FEWEST_NUMBER, _DUMP[known].sum(axis=1) >= FEWEST_HEX
        data = (spaces <= MOST_CODE_SPACES) | numbers | dump
        odd = np.flatnonzero((spaces < FEWEST_SPACES) | (((rows < LOW).sum(axis=1) > MOST_LOW) & data)).astype(np.int32)
        spelled = not text.isascii() and _SPELLED.search(text) is not None
        if len(odd) or spelled:
            yield Oddity(number, odd, spelled)


def without_data(text: str, rows: NDArray[np.int32]) -> Iterator[str]:
    """The pieces of a text, without its stretches that are no language, in steps of bounded length; these rows of it are odd."""
    done = 0
    for start, end in _stretches(text, rows):
        if (start := max(start, done)) < end:
            yield text[done:start]
            yield "\n\n" + " " * (end - start - 4) + "\n\n" if end - start >= 4 else " " * (end - start)
            done = end
        else:
            yield ""  # nothing was found for a while, which may have taken as long
    yield text[done:]


def _stretches(text: str, rows: NDArray[np.int32]) -> Iterator[tuple[int, int]]:
    for first, last in _groups(rows):
        before = max(first * ROW - AROUND, 0)
        for found in _STRETCH.finditer(text[before : (last + 1) * ROW + AROUND]):
            if _is_long(found):
                yield before + found.start(), before + found.end()
        yield 0, 0


def _groups(rows: NDArray[np.int32]) -> Iterable[tuple[int, int]]:
    """The first and last rows of groups of rows."""
    apart = np.flatnonzero(np.diff(rows) > TOGETHER) + 1
    bounds = sorted({0, *apart.tolist(), *range(0, len(rows), AT_ONCE), len(rows)})
    return ((int(rows[start]), int(rows[end - 1])) for start, end in pairwise(bounds))


def _is_long(found: re.Match[str]) -> bool:
    """Whether the stretch is long enough to be none that may be searched for, and is what its pattern looks for."""
    stretch, length = found[0], found.end() - found.start()
    if found["numbers"] is not None:
        return length >= 2 * LONGEST and 2 * sum(map(str.isdigit, stretch)) >= length - sum(map(str.isspace, stretch))
    if found["code"] is not None:
        return length >= LONGEST and 12 * sum(map(str.isspace, stretch)) < length
    return length >= LONGEST


def is_data(sentence: str) -> bool:
    """Whether a sentence is only a hash, an identifier or a line of base64."""
    return _ALONE.fullmatch(sentence) is not None
