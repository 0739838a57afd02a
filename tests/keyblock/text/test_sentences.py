"""Where sentences end: cases that a reader can judge. The compiled way is held to these rules with any text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.text.sentences import sentence_ends, sentences
from tests.keyblock.text.texts import PROSES


def sentence_texts(text: str) -> list[str]:
    return [text[start:end] for start, end in sentences(text)]


@given(st.text(max_size=80) | PROSES)
def test_nothing_is_lost(text: str) -> None:
    """Sentences follow each other, begin and end with no space, and hold all but the spaces between them."""
    assert "".join("".join(sentence_texts(text)).split()) == "".join(text.split())
    assert all(one == one.strip() and one for one in sentence_texts(text))
    ends = sentence_ends(text).tolist()
    assert ends == sorted(set(ends))
    assert all(0 <= end < len(text) for end in ends)


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
