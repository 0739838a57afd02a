"""The parts of documents to pass on: answering spans with the headings above them, within a token limit for all documents.

Spans are taken in the order of their scores, from whichever document; then the headings above them, then adjacent sentences, as
long as there is room. If a span does not fit, its first sentences that fit are taken.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from keyblock.ranking.spans import Span, is_gap
from keyblock.text.sentences import CLOSING, FULL_STOPS, sentences

GAP = " … "  # between two parts that are not adjacent
GAP_ABOVE = " …\n"  # the same before a heading
BESIDE = 1000  # characters before and after a span that are searched for an adjacent sentence
ABOVE = 20_000  # characters before a span that are searched for its heading
_HEADING = re.compile(
    r"^(?P<fence>```|~~~)(?s:.*?)(?:^(?P=fence)|\Z)"  # lines of code, in which # starts no heading
    r"|^#{1,6}[ \t]+[^\s#][^\r\n]*"
    r"|(?:\A|(?<=\n\n)|(?<=\n\r\n))(?P<alone>(?![-+•>|#]|\*[ \t])[^\r\n]{1,80})(?=\r?\n\r?\n)",
    re.MULTILINE,
)
_SENTENCE_LIKE = tuple(".!?:;,…" + FULL_STOPS)
_PARAGRAPH = re.compile(r"\n\r?\n")

Count = Callable[[str], int]
"""Tokens of a text."""


class Part(NamedTuple):
    """``text[start:end]`` of a document, in code points."""

    start: int
    end: int


class Context(NamedTuple):
    """The part of a document that is passed on.

    Attributes:
        text: its parts in document order; headings on separate lines, GAP between parts that are not adjacent.
        tokens: tokens of the text.
        parts: the parts' offsets in the document.
    """

    text: str
    tokens: int
    parts: list[Part]


class Pruner:
    """Prunes the documents of one answer.

    Args:
        texts: the documents' texts, by number.
        count: counts the tokens of a text.
        most: the most tokens of all documents together; none: no limit, and no adjacent sentences.
    """

    def __init__(self, texts: Mapping[int, str], count: Count, most: int | None = None) -> None:
        self._texts, self._count, self._most = texts, count, most
        self._between = count(GAP)
        self._taken: list[tuple[int, Part]] = []
        self._parts: dict[int, list[Part]] = {}
        self._headings: dict[int, set[Part]] = {}
        self._used = 0

    def prune(self, spans: Mapping[int, Sequence[Span]]) -> dict[int, Context]:
        """The context of each document from which something is taken.

        Args:
            spans: the documents' spans, by number; among equal scores, the document that comes first here goes first.
        """
        best = sorted(((number, span) for number, of in spans.items() for span in of), key=lambda pair: -pair[1].score)
        taken = [(number, part) for number, span in best if (part := self._take(number, span)) is not None]
        for number, part in taken:
            self._add_heading(number, part)
        if self._most is not None:
            for number, part in taken:
                self._add_neighbours(number, part)
        contexts = {number: self._context(number) for number in spans if number in self._parts}
        self._shorten(contexts)
        return contexts

    def _shorten(self, contexts: dict[int, Context]) -> None:
        """Remove the parts taken last, until the contexts as written fit into the token limit."""
        tokens = sum(context.tokens for context in contexts.values())
        while self._most is not None and tokens > self._most:
            number, part = self._taken.pop()
            self._parts[number].remove(part)
            tokens -= contexts.pop(number).tokens
            if self._parts[number]:
                contexts[number] = self._context(number)
                tokens += contexts[number].tokens

    def _take(self, number: int, span: Span) -> Part | None:
        """Take a span, or its first sentences that fit; None if not even one fits."""
        part = Part(span.start, span.end)
        if self._add(number, part):
            return part
        text = self._texts[number][span.start : span.end]
        first, used = 0, self._used
        for start, end in list(sentences(text))[:-1]:
            used += self._count(text[start:end])
            if self._most is not None and used + self._between > self._most:
                break
            first = end
        part = Part(span.start, span.start + first)
        return part if first and self._add(number, part) else None

    def _add(self, number: int, part: Part) -> bool:
        """Take a part if there is room for it and for the gap between parts."""
        if self._most is not None and self._used + self._between >= self._most:
            return False
        cost = self._count(self._texts[number][part.start : part.end]) + self._between
        if self._most is not None and self._used + cost > self._most:
            return False
        self._used += cost
        self._taken.append((number, part))
        self._parts.setdefault(number, []).append(part)
        return True

    def _add_heading(self, number: int, part: Part) -> None:
        found = heading(self._texts[number], part.start)
        if found is not None and not self._has(number, found) and self._add(number, found):
            self._headings.setdefault(number, set()).add(found)

    def _add_neighbours(self, number: int, part: Part) -> None:
        for found in neighbours(self._texts[number], part):
            if not self._has(number, found):
                self._add(number, found)

    def _has(self, number: int, part: Part) -> bool:
        return any(one.start < part.end and part.start < one.end for one in self._parts[number])

    def _context(self, number: int) -> Context:
        text, headings = self._texts[number], self._headings.get(number, set())
        parts: list[Part] = []
        pieces: list[str] = []
        under_heading = False
        for part in sorted(self._parts[number]):
            last = parts[-1] if parts else None
            if last is not None and is_gap(text[last.end : part.start]):
                parts[-1] = Part(last.start, part.end)
                pieces.append(text[last.end : part.end])
            else:
                if last is not None:
                    pieces.append("\n" if under_heading else GAP_ABOVE if part in headings else GAP)
                pieces.append(text[part.start : part.end])
                parts.append(part)
            under_heading = part in headings
        joined = "".join(pieces)
        return Context(joined, self._count(joined), parts)


def heading(text: str, before: int) -> Part | None:
    """The nearest heading above a place: a Markdown heading, or a short line that stands alone and is no sentence."""
    found = None
    for match in _HEADING.finditer(text, max(before - ABOVE, 0), before):
        if match["fence"] is None and match.end() < before and (match["alone"] is None or _is_title(match["alone"])):
            found = Part(match.start(), match.start() + len(match[0].rstrip()))
    return found


def _is_title(line: str) -> bool:
    """Whether a line that stands alone has a word and does not end as a sentence does."""
    return any(map(str.isalnum, line)) and not line.rstrip().rstrip(CLOSING).endswith(_SENTENCE_LIKE)


def neighbours(text: str, part: Part) -> Iterator[Part]:
    """The sentences after and before a part in the same paragraph; a sentence longer than BESIDE is left out."""
    behind = text[part.end : part.end + BESIDE]
    ended = _PARAGRAPH.search(behind)
    whole = ended is not None or part.end + BESIDE >= len(text)
    for start, end in list(sentences(behind[: ended.start()] if ended else behind))[:1]:
        if whole or end < len(behind):
            yield Part(part.end + start, part.end + end)
    first = max(part.start - BESIDE, 0)
    paragraph = max((found.end() for found in _PARAGRAPH.finditer(text, first, part.start)), default=0)
    offset = paragraph or first
    for start, end in list(sentences(text[offset : part.start]))[-1:]:
        if paragraph or not first or start > 0:
            yield Part(offset + start, offset + end)
