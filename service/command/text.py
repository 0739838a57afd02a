"""Prepares passages for people: finds the query's words in them, and replaces characters that a terminal would obey."""

import re
import unicodedata
from functools import cache

from keyblock.text.alphabets import script_of
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from keyblock.text.scripts import UNSPACED, spaced_letters

Span = tuple[int, int]
_BLANK = re.compile(r"\s+")
_UNKNOWN = "\ufffd"
_SAFE: dict[int, str] = (
    {code: chr(0x2400 + code) for code in range(0x20)}  # control characters, such as those of escape sequences: shown, not obeyed
    | {ord(blank): " " for blank in "\t\n\v\f\r\x1c\x1d\x1e\x1f\x85\u2028\u2029"}
    | {0x7F: "\u2421"}
    | dict.fromkeys((*range(0x80, 0x85), *range(0x86, 0xA0)), _UNKNOWN)
    | dict.fromkeys((*range(0x202A, 0x202F), *range(0x2066, 0x206A)), _UNKNOWN)  # they change the direction of the text after them
)


class Highlighter:
    """Finds the words of a query as the selector does: by their stems, without stop words.

    In scripts that the analyzer does not know, documents have universal terms (see `keyblock.preparation`), and so does the query.

    Args:
        analyzer: of the pipeline.
        query: the query.
    """

    def __init__(self, analyzer: Analyzer, query: str) -> None:
        self._analyzer = analyzer
        self._universal = Analyzer(AnalyzerConfig(name="universal"))
        self._keys = frozenset(analyzer.keys(query))
        self._universal_keys = frozenset(self._universal.keys(query))

    def spans(self, text: str) -> list[Span]:
        """The places of the words, as offsets in code points, ascending and disjoint; each ends behind its last mark."""
        found: list[Span] = []
        for match in _words().finditer(text):
            for start, end in self._pairs(match) if match[1] else self._word(match):
                first = found.pop()[0] if found and start <= found[-1][1] else start  # pairs overlap
                found.append((first, _behind_marks(text, end)))
        return found

    def _word(self, match: re.Match[str]) -> list[Span]:
        """The span of the word, if the query has it."""
        word = match[0]
        if self._analyzer.config.name == "english" and script_of(word[0]) not in ("latin", None):
            return [match.span()] if self._in_query_universally(word) else []
        return [] if self._keys.isdisjoint(self._analyzer.keys(word)) else [match.span()]

    def _pairs(self, match: re.Match[str]) -> list[Span]:
        """Pairs of neighbouring characters that the query also has, in a script without spaces; a lone character by itself."""
        (start, end), text = match.span(), match.string
        width = min(2, end - start)
        return [(at, at + width) for at in range(start, end - width + 1) if self._in_query_universally(text[at : at + width])]

    def _in_query_universally(self, word: str) -> bool:
        keys = self._universal.keys(word)  # several if one spelling of the word has more characters
        return bool(keys) and self._universal_keys.issuperset(keys)


@cache
def _words() -> re.Pattern[str]:
    """Matches words with their marks, and runs of scripts without spaces (group 1)."""
    return re.compile(rf"([{UNSPACED}]+)|[{spaced_letters()}]+")


def _behind_marks(text: str, end: int) -> int:
    """The end of the character that ends here, with its accents and vowel signs."""
    while end < len(text) and unicodedata.category(text[end])[0] == "M":
        end += 1
    return end


def visible(text: str) -> str:
    """The text with a harmless character for each one that a terminal would obey, or cannot show; offsets stay the same."""
    return "".join(_UNKNOWN if "\ud800" <= character <= "\udfff" else character for character in text.translate(_SAFE))


def in_a_line(text: str) -> str:
    """The text for one line: visible, with single blanks."""
    return _BLANK.sub(" ", visible(text))
