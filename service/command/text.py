"""Passages for people: which words of a passage the query has, and characters that no terminal obeys."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from keyblock.text.analyzer import Analyzer

Span = tuple[int, int]
_WORD = re.compile(r"\w+")
_BLANK = re.compile(r"\s+")
_UNKNOWN = "\ufffd"
_SAFE: dict[int, str] = (
    {code: chr(0x2400 + code) for code in range(0x20)}  # escape sequences among them: shown, not obeyed
    | {ord(blank): " " for blank in "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"}
    | {0x7F: "\u2421"}
    | dict.fromkeys((*range(0x80, 0x85), *range(0x86, 0xA0)), _UNKNOWN)
    | dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), _UNKNOWN)  # they turn the direction of what follows
)


class Piece(NamedTuple):
    """A stretch of a passage: words of the query, or what is between them."""

    text: str
    found: bool


class Highlighter:
    """Finds the words of a query as the selector does: by their stems, stop words left out.

    Args:
        analyzer: the pipeline's.
        query: the query.
    """

    def __init__(self, analyzer: Analyzer, query: str) -> None:
        self._analyzer = analyzer
        self._keys = frozenset(analyzer.keys(query))

    def spans(self, text: str) -> list[Span]:
        """Where they stand, as offsets in code points, ascending; each holds whole characters, combining marks included."""
        words = (match.span() for match in _WORD.finditer(text))
        return [(start, _whole(text, end)) for start, end in words if self._has(text[start:end])]

    def _has(self, word: str) -> bool:
        return not self._keys.isdisjoint(self._analyzer.keys(word))


def _whole(text: str, end: int) -> int:
    """The end of the character that ends at `end`, with the marks that follow it."""
    while end < len(text) and unicodedata.category(text[end]).startswith("M"):
        end += 1
    return end


def pieces(text: str, spans: Sequence[Span]) -> Iterator[Piece]:
    """The text from its beginning to its end, cut at the spans; nothing is lost.

    >>> [piece.text for piece in pieces("a river here", [(2, 7)])]
    ['a ', 'river', ' here']
    """
    place = 0
    for start, end in spans:
        if place < start:
            yield Piece(text[place:start], False)
        yield Piece(text[start:end], True)
        place = end
    if place < len(text):
        yield Piece(text[place:], False)


def visible(text: str) -> str:
    """The text with a harmless character for each that a terminal would obey, or cannot show: the offsets stay."""
    return "".join(_UNKNOWN if "\ud800" <= character <= "\udfff" else character for character in text.translate(_SAFE))


def in_a_line(text: str) -> str:
    """The text as it is shown: visible, with single blanks."""
    return _BLANK.sub(" ", visible(text))
