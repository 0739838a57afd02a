"""Where sentences end: cases that a reader can judge, and any text against a slow walk over its characters."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.text import sentences as rules
from keyblock.text.sentences import sentence_ends, sentences

CLOSING = rules.CLOSING.replace("\\", "")
MARKS = ".!?…"
PIECES = st.sampled_from(
    """. . . . ! ? … ... ?! 。 ！ " ' ” ’ ) ] ( “ ‘ - * — , : Dr Mr e.g i.e U.S J A p.m No no Fig p 5 12 3.5 1 1.2 Inc the The He
    said Said word longer Longest éa Éa ß 東京 Jan Alice Bob fox x X Ph.D etc \ud800 \u0301""".split()
    + [" "] * 30
    + ["\n", "\n", "\n\n", "\r\n", "\t", "\x0c", "\u2029", "  ", "Name: ", "of words that go on until the line is full"]
)
TEXT = st.text(max_size=80) | st.lists(PIECES, max_size=60).map("".join)


def sentence_texts(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


def slow_ends(text: str) -> list[int]:
    """The rules once more, character by character."""
    capitals, line, place = not text.islower(), 0, 0
    ends: list[int] = []
    doubtful: list[int] = []
    broken = False
    while place < len(text):
        mark, start = text[place], place
        place += 1
        if mark in rules.BREAKS:
            while place < len(text) and text[place].isspace():
                place += 1
            way = slow_line(text, line, start, place)
            line, broken = place, broken or way == "goes on"
            {"ends": ends, "doubtful": doubtful, "goes on": []}[way].append(start)
        elif mark in MARKS or mark in rules.FULL_STOPS:
            family = MARKS if mark in MARKS else rules.FULL_STOPS
            while place < len(text) and text[place] in family:
                place += 1
            while place < len(text) and text[place] in CLOSING:
                place += 1
            if family == rules.FULL_STOPS or slow_stops(text, start, place, capitals):
                ends.append(place)
    return sorted({end for end in (ends if broken else ends + doubtful) if end < len(text)})


def slow_line(text: str, first: int, end: int, following: int) -> str:
    """What the line from `first` to `end` does; the next one begins at `following`."""
    gap, rest = text[end:following], text[following:]
    if gap.count("\n") != 1 or not 40 <= end - first <= 100:
        return "ends"
    if rules._ITEM.match(rest):
        return "ends"
    return "goes on" if rest[:1].islower() else "doubtful"


def slow_stops(text: str, start: int, place: int, capitals: bool) -> bool:
    """Whether marks and what closes behind them, from `start` to `place`, end a sentence."""
    if place == len(text):
        return True
    if not text[place].isspace():
        return False
    following = text[place:].lstrip().lstrip(rules.OPENING) if text[place:].strip() else ""
    if not following:
        return True
    if capitals and following[0].islower():
        return False
    words = text[:start].split()
    word = words[-1][-rules.LONGEST :].lstrip(rules.OPENING) if words else ""
    if text[start:place] != "." or not words or text[start - 1].isspace() or len(word) >= rules.LONGEST:
        return True
    at_line = text[: start - len(word)][-1:] in ("", *rules.BREAKS)
    return slow_word_ends(word, following, at_line)


def slow_word_ends(word: str, following: str, at_line: bool) -> bool:
    """Whether the period behind the word ends a sentence."""
    if word.lower() in rules.TITLES:
        return False
    if word.lower() in rules.BEFORE_NUMBERS:
        return not following[0].isdigit()
    parts = word.split(".")
    if word.lower() in rules.NAMES_GO_ON or all(len(part) == 1 and part.isalpha() for part in parts):
        begins = ""
        for character in following:
            if not (character.isalnum() or character == "_"):
                break
            begins += character
        return begins.lower() in rules.BEGINNERS
    return not (at_line and all(1 <= len(part) <= 3 and part.isdecimal() for part in parts))


@given(TEXT)
def test_ends_equal_the_slow_walk(text: str) -> None:
    assert sentence_ends(text).tolist() == slow_ends(text)


@given(TEXT)
def test_nothing_is_lost(text: str) -> None:
    """Sentences follow each other, begin and end with no space, and hold all but the spaces between them."""
    assert "".join("".join(sentence_texts(text)).split()) == "".join(text.split())
    assert all(one == one.strip() and one for one in sentence_texts(text))
    ends = sentence_ends(text).tolist()
    assert ends == sorted(set(ends))
    assert all(0 <= end < len(text) for end in ends)


@given(st.integers(0, 12), st.sampled_from([". Next", "Dr. Who", "end.” Next", "a\n\nb"]))
def test_pieces_of_a_long_text_meet(shift: int, joint: str) -> None:
    text = "a" * (rules.PIECE - shift) + " Words" + joint + " more Words. Yes."
    assert sentence_ends(text).tolist() == slow_ends(text)


@pytest.mark.parametrize(
    "expected",
    [
        ["Dr. Smith met J. A. Jones of the U.S. Army.", "They left."],
        ["Q. What does E04 mean?", "A. The pump is dry.", "Fill plan B.", "What else?"],
        ["It was 5 p.m. on Jan. 5.", "He paid $3.50 for No. 5 (too much!).", "He said no.", "We left."],
        ['"Why?" he asked.', '"No. 5 is alive."', "They moved to the U.S.", "The end came."],
        ["The cat, e.g. Tom, sat.", "It had vitamin C.", "However, it failed ...", "Then it won."],
        ["Acme Inc. Chairman Joe spoke.", "He left Acme Inc.", "The firm closed."],
        ["(He came.)", "[She left.]", "“Stop!”", "‘Go on,’ he said.", "See Fig. 2 and p. 7.", "End"],
        ["‘Twinkle, twinkle—’ and went on so long that they pinched it.", "‘Well,’ said the Hatter."],
        ["1. Introduction", "2.1. Methods", "In 1999.", "Then more."],
        ["Alice: Are you there", "Bob: I am", "Alice: Good"],
        ["A heading", "- one item", "- another item", "A paragraph."],
        ["東京は首都です。", "人口は多い！", "「はい。」", "終わり"],
        ["no capitals here.", "so a period ends it.", "is that so?", "it is."],
    ],
)
def test_a_reader_agrees(expected: list[str]) -> None:
    between = "\n" if expected[0].startswith(("1.", "Alice", "A heading", "Q.")) else "" if expected[0][0] == "東" else " "
    assert sentence_texts(between.join(expected)) == expected


def test_lines_broken_at_a_width_do_not_end_sentences() -> None:
    text = (
        "This is a text whose lines are broken at some width, as in\ne-mails. It mentions the long journey of the explorer\n"
        "John Smith to the far east of the country.\n\nA new paragraph\n"
    )
    assert sentence_texts(text) == [
        "This is a text whose lines are broken at some width, as in\ne-mails.",
        "It mentions the long journey of the explorer\nJohn Smith to the far east of the country.",
        "A new paragraph",
    ]


def test_lines_of_verse_and_of_long_turns_end() -> None:
    lines = ["Up above the world so high in the evening sky", "Like a tea-tray made of silver in the evening sky", "Twinkle"]
    assert sentence_texts("\n".join(lines)) == lines
