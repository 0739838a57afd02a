"""The parts of documents to pass on: answering spans with the headings above them, within a token limit for all documents.

Spans are taken in the order of their scores, from whichever document; then the headings above them, then adjacent sentences, as
long as there is room. If a span does not fit, its first sentences that fit are taken. No sentence is taken twice, and no near copy.
"""

import re
from bisect import bisect_left, insort
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import cache
from itertools import chain
from typing import TypeVar

from keyblock.ranking.copies import Copies
from keyblock.ranking.spans import Span, is_gap
from keyblock.results import Context, Part
from keyblock.text.readable import is_data
from keyblock.text.sentences import CLOSING, FULL_STOPS, sentences

GAP = " … "  # between two parts that are not adjacent
GAP_ABOVE = " …\n"  # the same before a heading
CHARS_PER_TOKEN = 16  # a text counts as at least one token for so many characters: a word of any length may be one token here
BESIDE = 1000  # characters before and after a span that are searched for an adjacent sentence
ABOVE = 20_000  # characters before a span that are searched for its heading
LONGEST_HEADING = 1000  # characters; a longer line is no heading
STEP = 1 << 16  # characters that are searched in one step
_LINE = re.compile(  # begins with a line's end, since only lines are looked at: all other text is skipped at once
    r"\n(?![\r\n])(?:(?P<fence>```|~~~)"  # a fence opens and closes lines of code, in which # starts no heading
    rf"|#{{1,6}}[ \t]+[^\s#][^\r\n]{{0,{LONGEST_HEADING - 9}}}(?=[\r\n]|\Z)"
    r"|(?P<alone>(?![-+•>|#]|\*[ \t])[^\r\n]{1,80})(?=\r?\n\r?\n))",
)
_BLANK = ("\n", "\n\r")  # what ends before the line's end above a line that stands alone
_SENTENCE_LIKE = tuple(".!?:;,…" + FULL_STOPS)
_PARAGRAPH = re.compile(r"\n\r?\n")

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work in steps of bounded length: it yields between them, when its caller may stop it, or let others go on."""
Late = Callable[[], bool]
"""Whether time is up: the work then ends with what it has."""
Count = Callable[[str], int]
"""Tokens of a text."""


def never() -> bool:
    """Time is never up."""
    return False


class Pruner:
    """Prunes the documents of one answer.

    Args:
        texts: the documents' texts, by number; only those whose spans are given are read.
        count: counts the tokens of a text.
        most: the most tokens of all documents together; none: no limit.
        late: whether to end with the contexts that are made.
        readable: makes of a text what a person reads of it, as long as the text: only that is taken.

    Attributes:
        stopped: whether it was late before all was done.
        copies: how many sentences of spans were left out, since a context had them or near copies of them.
    """

    def __init__(
        self,
        texts: Sequence[str] | Mapping[int, str],
        count: Count,
        most: int | None = None,
        late: Late = never,
        readable: Callable[[str], str] = str,
    ) -> None:
        self._texts, self._most, self._late = texts, most, late
        self._count: Count = lambda text: max(count(text), len(text) // CHARS_PER_TOKEN)
        self._readable = cache(lambda number: readable(texts[number]))
        self.stopped, self.copies = False, 0
        self._seen = Copies()
        self._between = count(GAP)
        self._taken: list[tuple[int, Part]] = []
        self._parts: dict[int, list[Part]] = {}  # in document order
        self._headings: dict[int, set[Part]] = {}
        self._used = 0

    def prune(self, spans: Mapping[int, Sequence[Span]]) -> Steps[dict[int, Context]]:
        """The context of each document from which something is taken.

        Args:
            spans: the documents' spans, by number; among equal scores, the document that comes first here goes first.
        """
        contexts: dict[int, Context] = {}
        # without a limit no document takes another one's room, so that each is done before the next
        for group in [spans] if self._most is not None else [{number: of} for number, of in spans.items()]:
            yield from self._take_all(group)
            for number in group:
                yield
                if self._stops():
                    break
                if number in self._parts:
                    contexts[number] = self._context(number)
        self._shorten(contexts)
        return contexts

    def _take_all(self, spans: Mapping[int, Sequence[Span]]) -> Steps[None]:
        """Take the spans of documents, then the headings above them, then their neighbours."""
        taken: list[tuple[int, Part]] = []
        for number, span in sorted(
            ((number, span) for number, of in spans.items() for span in of), key=lambda pair: -pair[1].score
        ):
            yield
            if self._stops():
                return
            fresh = [self._take(number, part) for part in self._without_copies(number, span)]
            taken += [(number, part) for part in fresh if part is not None]
        places: dict[int, list[int]] = {}
        for number, part in taken:
            places.setdefault(number, []).append(part.start)
        above: dict[int, dict[int, Part]] = {}
        for number, starts in places.items():
            above[number] = yield from headings(self._texts[number], starts, self._stops)
        for number, part in taken:
            yield
            if self._stops():
                return
            self._add_heading(number, above[number].get(part.start))
        for number, part in taken:
            yield
            if self._stops():
                return
            self._add_neighbours(number, part)

    def _stops(self) -> bool:
        self.stopped = self.stopped or self._late()
        return self.stopped

    def _shorten(self, contexts: dict[int, Context]) -> None:
        """Remove the parts taken last, until the contexts as written fit into the token limit."""
        tokens = sum(context.tokens for context in contexts.values())
        while self._most is not None and tokens > self._most:
            number, part = self._taken.pop()
            self._parts[number].remove(part)
            if number not in contexts:  # time was up before it was made
                continue
            tokens -= contexts.pop(number).tokens
            if self._parts[number]:
                contexts[number] = self._context(number)
                tokens += contexts[number].tokens

    def _without_copies(self, number: int, span: Span) -> list[Part]:
        """The runs of sentences of a span that are no copies; from then on they are known, since room never grows."""
        text, found, gap = self._readable(number)[span.start : span.end], list[Part](), True
        for start, end in sentences(text):
            if self._seen.add(text[start:end]):
                found.append(Part(span.start + start if gap else found.pop().start, span.start + end))
                gap = False
            else:
                self.copies, gap = self.copies + 1, True
        return found

    def _take(self, number: int, part: Part) -> Part | None:
        """Take a part, or its first sentences that fit; None if not even one fits."""
        if self._add(number, part):
            return part
        text = self._readable(number)[part.start : part.end]
        first, used = 0, self._used
        for start, end in list(sentences(text))[:-1]:
            used += self._count(text[start:end])
            if self._most is not None and used + self._between > self._most:
                break
            first = end
        part = Part(part.start, part.start + first)
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
        insort(self._parts.setdefault(number, []), part)
        return True

    def _add_heading(self, number: int, found: Part | None) -> None:
        if found is not None and not self._has(number, found) and self._add(number, found):
            self._headings.setdefault(number, set()).add(found)

    def _add_neighbours(self, number: int, part: Part) -> None:
        text = self._readable(number)
        for found in neighbours(text, part):
            sentence = text[found.start : found.end]
            if not self._has(number, found) and not is_data(sentence) and self._seen.add(sentence):
                self._add(number, found)

    def _has(self, number: int, part: Part) -> bool:
        return any(one.start < part.end and part.start < one.end for one in self._parts[number])

    def _context(self, number: int) -> Context:
        text, headings = self._texts[number], self._headings.get(number, set())
        parts: list[Part] = []
        pieces: list[str] = []
        under_heading = False
        for part in self._parts[number]:
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
        return Context(joined, self._count(joined), tuple(parts))


def headings(text: str, places: Sequence[int], late: Late = never) -> Steps[dict[int, Part]]:
    """The nearest heading above each of these places: a Markdown heading, or a short line that stands alone and is no sentence.

    The text before the places is read once, however many they are, and only ABOVE characters before each.
    """
    found: dict[int, Part] = {}
    above: list[Part] = []
    fence: str | None = None  # what opened the lines of code in which the reading has ended
    read = 0
    for place in sorted(set(places)):
        if place - ABOVE > read:
            read, fence = place - ABOVE, None
        while read < place:
            end = min(read + STEP, place)
            fence = _read_lines(text, read, end, fence, above)
            read = end
            yield
            if late():
                return found
        before = bisect_left(above, Part(place, 0))
        nearest = next((one for one in reversed(above[max(before - 2, 0) : before]) if one.end < place), None)
        if nearest is not None and nearest.start >= place - ABOVE:
            found[place] = nearest
    return found


def _read_lines(text: str, begin: int, end: int, fence: str | None, above: list[Part]) -> str | None:
    """Append the headings that start in a stretch of a text; `fence` is what opened the lines of code before it.

    Returns the same for the end of the stretch.
    """
    reach = end + LONGEST_HEADING
    first = None if begin else _LINE.match("\n" + text[:reach])
    for line in chain([first] if first else [], _LINE.finditer(text, max(begin - 1, 0), reach)):
        start = 0 if line is first else line.start() + 1
        if start >= end:
            break
        if line["fence"] is not None:
            fence = line["fence"] if fence is None else None if fence == line["fence"] else fence
        elif fence is None and (line["alone"] is None or (_is_below_blank(text, start) and _is_title(line["alone"]))):
            above.append(Part(start, start + len(line[0][1:].rstrip())))
    return fence


def _is_below_blank(text: str, start: int) -> bool:
    """Whether the line before a line is blank, or the text starts with it."""
    return not start or text[max(start - 3, 0) : start - 1].endswith(_BLANK)


def _is_title(line: str) -> bool:
    """Whether a line that stands alone has a word, is no data, and does not end as a sentence does."""
    return not is_data(line) and any(map(str.isalnum, line)) and not line.rstrip().rstrip(CLOSING).endswith(_SENTENCE_LIKE)


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
