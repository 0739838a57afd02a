"""Pruning, on documents small enough to see what should be left, and over any text."""

import itertools
import time
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.ranking.answer import finished
from keyblock.ranking.copies import Copies
from keyblock.ranking.pruning import ABOVE, GAP, STEP, Count, Pruner, headings, neighbours
from keyblock.ranking.spans import Span
from keyblock.results import Part

LEASE = """# Lease

## Repairs

Small repairs are paid by the tenant. Others by the landlord.

## Notice

Two months are enough. It is given in writing. The landlord reads it."""
NOTICE = LEASE.index("Two months")


def words(text: str) -> int:
    """Tokens, for tests: words."""
    return len(text.split())


def span(text: str, sentence: str, score: float) -> Span:
    return Span(text.index(sentence), text.index(sentence) + len(sentence), score)


def test_a_span_stands_under_its_heading() -> None:
    (context,) = finished(Pruner({0: LEASE}, words, 9).prune({0: [span(LEASE, "It is given in writing.", 0.9)]})).values()
    assert context.text == "## Notice\nIt is given in writing."
    assert [LEASE[part.start : part.end] for part in context.parts] == ["## Notice", "It is given in writing."]
    assert context.tokens == 7


def test_parts_that_do_not_touch_have_a_gap_and_those_that_touch_have_none() -> None:
    spans = [span(LEASE, "Two months are enough.", 0.9), span(LEASE, "The landlord reads it.", 0.8)]
    (context,) = finished(Pruner({0: LEASE}, words, 13).prune({0: spans})).values()
    assert context.text == f"## Notice\n\nTwo months are enough.{GAP}The landlord reads it."


def test_the_best_spans_of_all_documents_come_first() -> None:
    """Room for ten words: the second document's span is better, and the first one's does not fit any more."""
    texts = {0: "One two three four five six seven.", 1: "Eight nine ten eleven twelve thirteen."}
    spans = {0: [Span(0, len(texts[0]), 0.5)], 1: [Span(0, len(texts[1]), 0.9)]}
    assert {n: c.text for n, c in finished(Pruner(texts, words, 10).prune(spans)).items()} == {1: texts[1]}
    assert set(finished(Pruner(texts, words, 15).prune(spans))) == {0, 1}


def test_neighbours_are_taken_in_where_there_is_room() -> None:
    found = {0: [span(LEASE, "It is given in writing.", 0.9)]}
    for limit in (100, None):
        (context,) = finished(Pruner({0: LEASE}, words, limit).prune(found)).values()
        assert context.text == "## Notice\n\nTwo months are enough. It is given in writing. The landlord reads it."
    (context,) = finished(Pruner({0: LEASE}, words, 14).prune(found)).values()
    assert context.text.startswith("## Notice")
    assert "The landlord reads it." in context.text
    assert "Two months" not in context.text


def test_of_a_span_that_is_too_long_its_first_sentences_are_left() -> None:
    text = "One two three. Four five six. Seven eight nine."
    (context,) = finished(Pruner({0: text}, words, 7).prune({0: [Span(0, len(text), 0.9)]})).values()
    assert context.text == "One two three. Four five six."
    assert finished(Pruner({0: text}, words, 2).prune({0: [Span(0, len(text), 0.9)]})) == {}


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("# A\n\ntext here", "# A"),
        ("Introduction\n\nIt began in 1850. It went on.", "Introduction"),
        ("A sentence is no heading.\n\nIt began in 1850.", None),
        ("plain text", None),
        ("# A\n\nmore\n\n### B ###\n\ntext", "### B ###"),
        ("# A\n\nmore\n\n## How may it end?\n\ntext", "## How may it end?"),
        ("# A\r\n\r\n## B\r\n\r\ntext", "## B"),
        ("More.\r\n\r\nNotice\r\n\r\ntext", "Notice"),
        ("# A\n\n```sh\n# install it\npip install it\n```\n\ntext", "# A"),
        ("# A\n\n```sh\n# install it\npip install it", "# A"),
        ("# A\n\n---\n\ntext", "# A"),
        ("# A\n\n   \n\ntext", "# A"),
        ("# A\n\n- an item\n\ntext", "# A"),
        ('# A\n\nHe said "stop."\n\ntext', "# A"),
        ("1. Notice\n\ntext", "1. Notice"),
    ],
)
def test_headings(text: str, found: str | None) -> None:
    part = heading(text, len(text) - 2)
    assert (None if part is None else text[part.start : part.end]) == found


@given(
    st.lists(st.sampled_from(["# A", "Title", "\n", "\r\n", "```", "~~~", "text.", "- x", " ", "## B"]), max_size=40), st.randoms()
)
def test_headings_of_many_places_are_those_of_each(pieces: list[str], random: Random) -> None:
    text = "".join(pieces)
    places = random.sample(range(len(text) + 1), min(5, len(text) + 1))
    found = finished(headings(text, places))
    assert [found.get(place) for place in places] == [heading(text, place) for place in places]


def test_the_text_above_many_spans_is_read_once() -> None:
    """A document of 10,000 lines that stand alone, with a span after each: it took minutes when each span read it again."""
    text = "Title\n\n" * 10_000
    steps, found = headings(text, range(7, len(text), 7)), None
    assert sum(1 for _ in steps) < 3 * 10_000
    found = finished(headings(text, range(7, len(text), 7)))
    assert all(found[place] == Part(place - 7, place - 2) for place in range(7, len(text), 7))


def test_lines_that_are_no_headings_are_read_in_short_steps() -> None:
    """Four million characters of short lines took 200 ms in one step, which neither a deadline nor a client that went could end."""
    text = "\na." * 100_000
    steps = sum(1 for _ in headings(text, range(0, len(text), ABOVE)))
    assert steps >= len(text) // STEP
    assert sum(1 for _ in headings(text, [ABOVE, len(text)])) == 2  # what is far from a place is not read
    assert finished(headings("# A\n\n" + text, [len(text)], late=lambda: True)) == {}


def heading(text: str, before: int) -> Part | None:
    return finished(headings(text, [before])).get(before)


def test_the_rest_of_a_line_where_the_search_begins_is_no_heading() -> None:
    text = "A line of many words that goes on and ends here\n\n" + "More. " * (ABOVE // 6)
    assert heading(text, ABOVE + 20) is None


def test_a_heading_stands_on_a_line_of_its_own() -> None:
    text = "# A\n\nOne two. More.\n\n# B\n\nMore. Three four."
    found = {0: [span(text, "One two.", 0.9), span(text, "Three four.", 0.8)]}
    (context,) = finished(Pruner({0: text}, words, 12).prune(found)).values()
    assert context.text == "# A\n\nOne two. …\n# B\nThree four."
    touching = text.replace(" More.\n\n# B", "\n\n# B")
    found = {0: [span(touching, "One two.", 0.9), span(touching, "Three four.", 0.8)]}
    (context,) = finished(Pruner({0: touching}, words, 12).prune(found)).values()
    assert context.text == "# A\n\nOne two.\n\n# B\nThree four."


def test_a_long_span_is_counted_once_however_little_room_there_is() -> None:
    """Its sentences are, one by one, and not every beginning of it."""
    text, counted = "One two. " * 1000, list[int]()

    def count(text: str) -> int:
        counted.append(len(text))
        return words(text)

    for most in (1, 1500):
        finished(Pruner({0: text}, count, most).prune({0: [Span(0, len(text), 0.9)]}))
    assert sum(counted) < 6 * len(text)


@pytest.mark.parametrize("break_", ["\n\n", "\r\n\r\n"])
def test_neighbours_stay_in_the_paragraph(break_: str) -> None:
    text = "Before it.\n\nFirst one. Second one. Third one.\n\nAfter it.".replace("\n\n", break_)
    start = text.index("Second")
    part = Part(start, start + len("Second one."))
    assert [text[one.start : one.end] for one in neighbours(text, part)] == ["Third one.", "First one."]
    first = Part(text.index("First"), text.index("First") + len("First one."))
    assert [text[one.start : one.end] for one in neighbours(text, first)] == ["Second one."]
    third = Part(text.index("Third"), text.index("Third") + len("Third one."))
    assert [text[one.start : one.end] for one in neighbours(text, third)] == ["Second one."]


@given(
    st.text(max_size=300),
    st.lists(st.tuples(st.integers(0, 300), st.integers(1, 60), st.floats(0, 1)), max_size=5),
    st.integers(1, 40),
    st.sampled_from([words, len]),
)
def test_any_text_is_pruned_within_its_tokens_and_to_its_own_parts(
    text: str, places: list[tuple[int, int, float]], most: int, count: Count
) -> None:
    found = [Span(start, min(start + n, len(text)), score) for start, n, score in places if start < len(text)]
    found = [one for one in found if text[one.start : one.end].strip()]
    whole = sum(one.tokens for one in finished(Pruner({0: text}, count).prune({0: found})).values())
    for bound in (most, None):
        for context in finished(Pruner({0: text}, count, bound).prune({0: found})).values():
            assert context.tokens <= (whole if bound is None else min(bound, whole))
            assert all(0 <= start < end <= len(text) for start, end in context.parts)
            assert all(before.end <= after.start for before, after in itertools.pairwise(context.parts))
            assert all(text[part.start : part.end] in context.text for part in context.parts)


def test_what_stands_between_parts_is_within_the_tokens() -> None:
    """Characters are the tokens: the mark of a gap has three, and spaces count."""
    text = "A b. More.    C d.\n\n\n\n\n\nE f. More. G h."
    spans = [span(text, sentence, 0.9) for sentence in ("A b.", "C d.", "E f.", "G h.")]
    for most in range(1, 40):
        assert sum(one.tokens for one in finished(Pruner({0: text}, len, most).prune({0: spans})).values()) <= most


LONG = (
    "Whoever rents a flat in this house pays for small repairs up to the amount of one hundred euros a year, as long as the damage "
)
LONG += (
    "is in a part of the flat that is often in use, such as taps, switches, locks, handles of windows, and the chains of blinds."
)
A = "The notice period for the flat is three months."


@pytest.mark.parametrize(
    ("one", "other", "copies"),
    [
        (A, A, True),
        (A, "- “the NOTICE  period for the \uff46\uff4c\uff41\uff54 is three months!”", True),
        (A, A.replace("three", "two"), False),
        (LONG, LONG.replace("such as", "like"), True),
        (LONG, LONG.replace("euros a year", "euros each year"), True),
        (LONG, LONG.replace("one hundred", "250"), False),
        ("The lease began in 1998. " * 20, "The lease began in 1999. " * 20, False),
        ("ค่าเช่าต้องชำระทุกเดือน", "ค่าเช่าต้องชำระทุกปี", False),
        ("किराया की", "किराया का", False),
        ("It is -5 °C.", "It is 5 °C.", False),
    ],
)
def test_what_counts_as_a_copy(one: str, other: str, copies: bool) -> None:
    seen = Copies()
    assert seen.add(one)
    assert seen.add(other) is not copies


def test_lines_of_one_form_with_other_numbers_are_not_compared() -> None:
    seen, began = Copies(), time.process_time()
    assert all(seen.add(f"The invoice with the number {number} was paid in full before the end.") for number in range(1000))
    assert time.process_time() - began < 2, "compared with all others, they took 9 s"


def test_contexts_have_each_sentence_once() -> None:
    """Also where one document repeats it, and beside a sentence that is new."""
    other = "Leaving earlier needs a successor; then one month is enough."
    texts = dict(enumerate([f"{A} {A}", A, f"{A} {other}"]))
    pruner = Pruner(texts, words, 40)
    contexts = finished(pruner.prune({number: [Span(0, len(text), 0.9)] for number, text in texts.items()}))
    assert {number: context.text for number, context in contexts.items()} == {0: A, 2: other}
    assert contexts[2].parts == (Part(len(A) + 1, len(A) + 1 + len(other)),)
    assert pruner.copies == 3
