r"""Where a text may be cut, in any script and any kind of text: prose, Markdown, code, tables, records, conversations.

free      between two parts: at a blank line, before a heading, an item of a list, a row of a table, a record of CSV or JSON, a
          speaker's turn, and where the indentation of code decreases
sentence  after a sentence, as `keyblock.text.sentences` finds it, with the full stops of all scripts, and after a statement of code
clause    after a comma, a semicolon, a colon or a dash of any script, after a sentence inside a record or a row, and at a space of
          Thai, Lao, Khmer or Myanmar, which put spaces between phrases
none      after a heading, the head of a table, a comment of code or the line that opens a block of code, which belong to the text
          after them; and after a line of prose that continues in the next line
"""

import re
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.text.sentences import BREAKS, CLOSING, WRAPPED, sentence_ends

# Sentence_Terminal of Unicode 15, without the marks in `keyblock.text.sentences`
OTHER_STOPS = (
    "\u061d\u061e\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u104b\u1362\u1367\u1368\u166e\u1735\u1736\u17d4\u17d5\u1803\u1809"
    "\u1944\u1945\u1aa8-\u1aab\u1b5a\u1b5b\u1b5e\u1b5f\u1b7d\u1b7e\u1c3b\u1c3c\u1c7e\u1c7f\u203c\u203d\u2047-\u2049\u2e2e\u2e3c"
    "\u2e53\u2e54\ua4ff\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\ufe12"
    "\ufe15\ufe16\ufe52\ufe56\ufe57\uff0e"
)
COMMAS = (
    "\u055d\u060c\u061b\u07f8\u104a\u1363-\u1366\u1802\u1804\u1808\u3001\ua60d\ua6f5\ufe10\ufe11\ufe50\ufe51\uff0c\uff1a\uff1b"
    "\uff64"
)
PAUSES = ",;:\u2013\u2014"  # these end a clause before a space
PHRASED = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\ua9e0-\ua9ff\uaa60-\uaa7f"  # scripts that put spaces between phrases
ITEM_MARKS = "-*+\u2022\u2023\u25e6\u25aa\u30fb"
WIDE_COLON = "\uff1a"
TURN = rf"[^\W\d_][\w .'\u2019\-]{{0,39}}(?::\s|{WIDE_COLON})"
_OTHER = re.compile(rf"[{OTHER_STOPS}]++[{CLOSING}]*+")
_CLAUSE = re.compile(  # each branch starts with the characters that it matches, so that all others are skipped at once
    rf"[{PAUSES}][{CLOSING}]*+(?=\s)|[{COMMAS}]++[{CLOSING}]*+| (?=[{PHRASED}])(?<=[{PHRASED}] )"
    rf"|,(?=[\"{{\[])(?<=[\"\d\]}}],)"
)
_RECORD = re.compile(r",(?=\s*[{\[])(?<=[}\]],)")  # between two records of JSON in one line
_LINE = re.compile(f"[^{BREAKS}]+")
_BEGINS = re.compile(rf"#{{1,6}}\s|[{ITEM_MARKS}]\s|\(?\w{{1,3}}[.)]\s|\||[{{\[]|{TURN}")
_OPENS = re.compile(r"#{1,6}\s|={3,}$|-{3,}$|\|[\s:|-]+\|?$|@\w")  # headings, their underlines, heads of tables, decorators
_UNDERLINES = re.compile(r"={3,}$|-{3,}$|\|[\s:|-]+\|?$")
_CLOSES = re.compile(r"[}\])]+[,;]?$|(?:```|~~~)$|end;?$|</[^>]*>$")  # lines that close the block before them
_FENCE = ("```", "~~~")
_STATEMENT = re.compile(
    r"(?:return|yield|raise|await|import|const|let|var)\s|from\s\S+\simport\s|(?:if|for|while|with|def|class|async|else|try)\b.*[:{]$"
    r"|@\w|[\w.\[\]\"'*, ]{1,60}\s[-+*/|&]?=\s|[\w.]+\(|.*[)\]};]$"
)
_UNFINISHED = tuple("([{,\\")  # ends of a line whose statement continues
_LONG_WRAPPED = range(WRAPPED.stop, 200)  # lengths of a line that an editor may have wrapped, in characters


class Cut(IntEnum):
    """The cost of a cut at a place; NONE: no cut is possible there."""

    NONE = 0
    FREE = 1
    SENTENCE = 2
    CLAUSE = 3


class Line(NamedTuple):
    """A line that is not blank.

    Attributes:
        start, end: offsets in the text.
        indent: characters of white space at its start.
        body: the line without white space around it.
        fields: counts of a record's delimiters: commas, semicolons and tabs without a space after them.
        opens: whether it belongs to the text after it.
        blank: whether a blank line precedes it.
        fenced: whether it is inside a fenced code block.
    """

    start: int
    end: int
    indent: int
    body: str
    fields: tuple[int, ...]
    opens: bool
    blank: bool
    fenced: bool


def cuts(text: str) -> tuple[NDArray[np.int32], NDArray[np.int8]]:
    """Places where a text may be cut, and the cost of each.

    Args:
        text: any Unicode; the time is proportional to its length.

    Returns:
        Ascending places in code points, shape (n,), and a Cut for each, shape (n,). CLAUSE is only for sentences inside records;
        `clauses` finds the ends of clauses.
    """
    other_ends = [found.end() for found in _OTHER.finditer(text)]
    sentence = np.unique(np.concatenate([sentence_ends(text), other_ends])).astype(np.int64)
    sentence = sentence[sentence > 0]  # a line break at the very start ends nothing
    parts, rows = _parts(text)
    parts += [(found.end(), Cut.FREE) for found in _RECORD.finditer(text)]
    places = np.concatenate([sentence, np.asarray([place for place, _ in parts], dtype=np.int64)])
    kinds = np.concatenate([_of_sentences(sentence, rows), np.asarray([kind for _, kind in parts], dtype=np.int64)])
    order = np.lexsort((kinds, places))
    places, kinds = places[order], kinds[order]
    first = np.append(True, np.diff(places) > 0)[: len(places)]  # among equal places, the kind with the smallest number
    return places[first].astype(np.int32), kinds[first].astype(np.int8)


def clauses(text: str) -> list[int]:
    """Where clauses end, ascending, in code points."""
    return [found.end() for found in _CLAUSE.finditer(text)]


def _of_sentences(places: NDArray[np.int64], rows: list[tuple[int, int]]) -> NDArray[np.int64]:
    """SENTENCE for each place where a sentence ends, but CLAUSE inside rows, which are kept whole if possible."""
    kinds = np.full(len(places), Cut.SENTENCE, np.int64)
    if rows:
        starts, ends = np.asarray(rows).T
        row = np.searchsorted(starts, places, "right") - 1
        kinds[(row >= 0) & (places < ends[row])] = Cut.CLAUSE
    return kinds


def _parts(text: str) -> tuple[list[tuple[int, Cut]], list[tuple[int, int]]]:
    """The ends of lines where the text's structure decides the kind of cut; and where rows and records start and end."""
    parts, rows = list[tuple[int, Cut]](), list[tuple[int, int]]()
    before: Line | None = None
    for line in _lines(text):
        if before is not None and (kind := _between(before, line)) is not None:
            parts.append((before.end, kind))
        if line.body.startswith("|"):
            rows.append((line.start, line.end))
        elif before is not None and _same_fields(before, line):
            rows += [(one.start, one.end) for one in (before, line) if not rows or rows[-1][0] < one.start]
        before = line
    return parts, rows


def _between(before: Line, line: Line) -> Cut | None:
    """The kind of cut between two lines; None if the sentence decides."""
    if before.opens or _UNDERLINES.match(line.body):
        return Cut.NONE
    if _CLOSES.match(line.body) and not line.blank:
        return Cut.NONE if line.fenced else None
    if line.blank or _BEGINS.match(line.body) or line.body.startswith(_FENCE) or before.body.startswith(_FENCE):
        return Cut.FREE
    if _same_fields(before, line) or (line.indent < before.indent and not _wrapped(before)):
        return Cut.FREE
    if _is_code(before) and _is_code(line) and not before.body.endswith(_UNFINISHED):
        return Cut.SENTENCE
    return Cut.NONE if _goes_on(before, line) else None


def _same_fields(before: Line, line: Line) -> bool:
    """Whether two lines have the same number of fields, as the records of a table do."""
    return max(line.fields) > 1 and any(has > 1 and has == had for has, had in zip(line.fields, before.fields, strict=True))


def _is_code(line: Line) -> bool:
    """Whether a line looks like a statement of code."""
    return line.fenced or _STATEMENT.match(line.body) is not None


def _goes_on(before: Line, line: Line) -> bool:
    """Whether a line that is too long to count as wrapped in `keyblock.text.sentences` continues in the next line."""
    return len(before.body) in _LONG_WRAPPED and _wrapped(before) and line.body[0].islower()


def _wrapped(line: Line) -> bool:
    """Whether a line of prose may continue in the next line."""
    return len(line.body) >= WRAPPED.start and (line.body[-1].isalpha() or line.body[-1] == ",")


def _lines(text: str) -> Iterator[Line]:
    """The lines that are not blank."""
    end, blank, fenced = 0, False, False
    for found in _LINE.finditer(text):
        body = found[0].strip()
        blank |= found.start() > end + 1 and text[end : found.start()] != "\r\n"
        end = found.end()
        if not body:
            blank = True
            continue
        fence = body.startswith(_FENCE)
        opens = (fence and not fenced) or _OPENS.match(body) is not None
        fields = tuple(body.count(mark) - body.count(f"{mark} ") for mark in ",;\t")
        indent = len(found[0]) - len(found[0].lstrip())
        yield Line(found.start(), end, indent, body, fields, opens, blank, fenced)
        fenced, blank = fenced != fence, False
