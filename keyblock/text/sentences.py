r"""Where the sentences of a text end, decided by its characters alone.

A sentence ends after ``. ! ? …`` before a space, and after the full stops of scripts without a space there; closing quotes and
brackets after the mark belong to the sentence. The sentence continues if the next word has no capital letter ("etc. and so on",
'Why?' he asked) in a text with capital letters, and after abbreviations, initials and what begins a list's item ("2.", "Q.").
The end of a line also ends a sentence, unless the sentence continues in the next line, as in e-mails and books with wrapped lines.
"""

import re
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

FULL_STOPS = "。！？｡।॥؟۔።։"  # these need no space after them
CLOSING = "\"'”’“»)\\]}*_」』）】》〉"
OPENING = "\"'“‘„«([{¿¡*_—–-"
MARKS = ".!?…"
BREAKS = "\n\r\f\v\x85\u2028\u2029"
BULLETS = "-*•‣◦▪·–—#"
IN_NAMES = " .'’-"  # allowed in a speaker's name, in addition to word characters
TITLES = frozenset(
    "dr mr mrs ms prof st mt ft gen col maj capt lt sgt cpl rev hon gov sen rep pres mme mlle vs cf viz e.g i.e".split()
)
NAMES_GO_ON = frozenset("inc ltd co corp jr sr bros ph.d".split())  # and initials: "J. Smith", "the U.S. Army"
BEFORE_NUMBERS = frozenset(
    """no nos nr p pp vol vols fig figs eq eqs art sec ch par tab ref ca jan feb mar apr jun jul aug sep sept oct nov dec
    """.split()
)
BEGINNERS = frozenset(  # words that begin a sentence if they have a capital letter, whatever precedes them
    """the this that these those it its he his she her they their we our you in on at by for from with as if but and or so
    however there then when where while after before during since although because what who why how""".split()
)
LONGEST = 6  # one more than the most characters of an abbreviation
WRAPPED = range(40, 101)  # lengths of a line that may have been wrapped, in characters
_END = re.compile(
    rf"(?<![{MARKS}])(?P<mark>[{MARKS}]++)[{CLOSING}]*+(?=\Z|\s++[{re.escape(OPENING)}]*+(?P<next>.?))"
    rf"|[{FULL_STOPS}]++[{CLOSING}]*+|(?P<line>[{BREAKS}]\s*+)",
    re.DOTALL,
)
_INITIALS = re.compile(r"[^\W\d_](?:\.[^\W\d_])*")
_NUMBERING = re.compile(r"\d{1,3}(?:\.\d{1,3})*")
_WORD = re.compile(r"\w+")
_ITEM = re.compile(rf"[{BULLETS}]|\(?\w{{1,3}}[.)]\s|[\w{IN_NAMES}]{{1,40}}:\s")  # a list's item, or a speaker's turn


def sentence_ends(text: str) -> NDArray[np.int32]:
    """Where sentences end, ascending, in code points: after the last mark, quote or bracket of each; without the text's end.

    Args:
        text: any Unicode; the time is proportional to its length.
    """
    capitals = not text.islower()
    ends: list[int] = []
    doubtful: list[int] = []  # ends of lines before a capital letter: they end sentences, unless the text's lines are wrapped
    wrapped, line = False, 0
    for found in _END.finditer(text):
        if found["line"] is None:
            if found["mark"] is None or not _goes_on(text, found, capitals):
                ends.append(found.end())
            continue
        is_end = _line_end(text, line, found)
        line = found.end()
        wrapped |= is_end is False
        (doubtful if is_end is None else ends if is_end else []).append(found.start())
    places = np.unique(np.asarray(ends if wrapped else ends + doubtful, dtype=np.int32))
    return places[places < len(text)]


def _goes_on(text: str, found: re.Match[str], capitals: bool) -> bool:
    """Whether the sentence continues after the found mark."""
    following, at = found["next"] or "", found.start()
    if not following:
        return False
    if capitals and following.islower():
        return True
    if found.end() - at > 1 or text[at] != ".":
        return False
    before = text[max(at - LONGEST, 0) : at].split()
    if not before or text[at - 1].isspace():
        return False
    word = before[-1].lstrip(OPENING)
    return len(word) < LONGEST and _abbreviates(text, word, at, found.start("next"))


def _abbreviates(text: str, word: str, at: int, following: int) -> bool:
    """Whether the period at `at` belongs to the word before it; the next word starts at `following`."""
    lower = word.lower()
    if lower in TITLES:
        return True
    if lower in BEFORE_NUMBERS:
        return text[following].isdigit()
    first = at - len(word)
    begins_line = first == 0 or text[first - 1] in BREAKS
    if lower in NAMES_GO_ON or _INITIALS.fullmatch(word):
        if begins_line and len(word) == 1:  # "Q. What does it mean?"
            return True
        begins = _WORD.match(text, following)
        return begins is None or begins[0].lower() not in BEGINNERS
    return bool(_NUMBERING.fullmatch(word)) and begins_line


def _line_end(text: str, start: int, found: re.Match[str]) -> bool | None:
    """Whether the line from `start` ends a sentence; None if that depends on the text's other lines."""
    length, gap, following = found.start() - start, found["line"], text[found.end() : found.end() + 1]
    if gap.count("\n") != 1 or length not in WRAPPED or _ITEM.match(text, found.end()):
        return True
    if following.islower():
        return False
    return None


def sentences(text: str) -> Iterator[tuple[int, int]]:
    """Where each sentence starts and ends, in code points, without the spaces around it; written for simplicity, not speed."""
    start = 0
    for end in [*sentence_ends(text).tolist(), len(text)]:
        piece = text[start:end]
        if piece.strip():
            yield start + len(piece) - len(piece.lstrip()), start + len(piece.rstrip())
        start = end
