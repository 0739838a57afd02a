"""Where texts of any script and kind may be cut: cases that a reader can judge, and any text."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.text import sentences
from keyblock.text.structure import Cut, clauses, cuts
from tests.keyblock.text import layouts


def pieces(text: str, *kinds: Cut) -> list[str]:
    """The text cut wherever a cut is of these kinds, without the white space around the pieces."""
    places, found = cuts(text)
    bounds = [0, *(place for place, kind in zip(places.tolist(), found.tolist(), strict=True) if kind in kinds), len(text)]
    return [piece.strip() for piece in (text[start:end] for start, end in pairwise(bounds)) if piece.strip()]


@pytest.mark.parametrize(
    "expected",
    [
        ["# Title\n\nIts text.", "## Part\nMore text.", "# Next\nEnd"],
        ["Title\n=====\nIts text.", "- one item\n  that goes on", "- another item", "2) a third"],
        ["| a | b |\n|---|---|\n| 1 | 2 |", "| 3 | 4 |", "| 5 | 6 |"],
        ["id,name,price", "1,a,2.50", "2,b,3.50"],
        ["Alice: are you there", "Bob: I am\nat home", "田中：はい"],
        ["def f(x):\n    y = 1\n    return x", "def g():\n    return 2", "print(f(1))"],
        ["Text:", "```python\nx = 1", "# a comment\ny = 2\n```", "More text"],
        ["class A:\n    x = 1", "@cache\ndef f():\n    pass"],
    ],
)
def test_parts_of_a_text(expected: list[str]) -> None:
    gap = "\n\n" if expected[0].startswith("class") else "\n"
    assert pieces(gap.join(expected), Cut.FREE) == expected


def test_paragraphs_are_parts_and_broken_lines_are_not() -> None:
    text = (
        "    The first line of a paragraph in a book begins with spaces,\nand goes on. So does\nthe second.\n \nAnother paragraph"
    )
    assert pieces(text, Cut.FREE) == [text[: text.index("\n \n")].strip(), "Another paragraph"]


def test_a_line_of_prose_goes_on_and_a_statement_does_not() -> None:
    line = "An import adds nothing to the score of a model, and what it should add is learned from the words that the query and"
    broken = f"{line}\ndocument share."
    assert pieces(broken, Cut.FREE, Cut.SENTENCE) == [broken]
    code = [
        "the_first_value_of_these = function_of(something, another)",
        "the_second_value = function_of(the_first_value_of_these)",
    ]
    assert pieces("\n".join(code), Cut.SENTENCE) == code
    call = "answer = function_of_many_arguments(the_first_argument,\n    the_second_argument, the_third_one)"
    assert pieces(call, Cut.FREE, Cut.SENTENCE) == [call]


def test_a_sentence_inside_a_record_ends_at_the_price_of_a_clause() -> None:
    records = ["7,M. Gruber! Yes,Linz,3.5", "8,B. Huber! No,Graz,2.5"]
    assert pieces("\n".join(records), Cut.FREE, Cut.SENTENCE) == records
    row = "| on the disk. No kill loses it | always |"
    assert pieces(f"{row}\n{row}", Cut.FREE, Cut.SENTENCE) == [row, row]
    assert pieces(row, Cut.CLAUSE) == ["| on the disk.", "No kill loses it | always |"]


def test_records_of_json_in_one_line() -> None:
    assert pieces('[{"a": 1, "b": [2, 3]},{"a": 4}, [5]]', Cut.FREE) == ['[{"a": 1, "b": [2, 3]},', '{"a": 4},', "[5]]"]


@pytest.mark.parametrize(
    "expected",
    [
        ["东京是首都。", "人口很多！", "「是的。」", "3.14是圆周率。", "完"],
        ["यह एक वाक्य है।", " यह दूसरा है॥", " अंत"],
        ["ሰላም ነው።", " ደህና፧", " አዎ"],
        ["هل أنت هنا؟", " نعم۔", " حسنا"],
        ["នេះជាប្រយោគ។", " ពីរ"],
        ["မြန်မာ။", "စာ"],
        ["“Er kam.”", " Dr. Weiß blieb z.B. hier.", " Ende"],
    ],
)
def test_sentences_of_all_scripts(expected: list[str]) -> None:
    assert pieces("".join(expected), Cut.SENTENCE) == [one.strip() for one in expected]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a, b; c: 3,5 d:e", ["a,", "b;", "c:", "3,5 d:e"]),
        ("甲，乙、丙；丁", ["甲，", "乙、", "丙；", "丁"]),
        ("نعم، لا؛ هو", ["نعم،", "لا؛", "هو"]),
        ("กิน ข้าว กับ Tom ไหม", ["กิน", "ข้าว", "กับ Tom ไหม"]),
        ('{"a":1,"b":[1,2],"c":"x"}', ['{"a":1,', '"b":[1,2],', '"c":"x"}']),
    ],
)
def test_clauses(text: str, expected: list[str]) -> None:
    bounds = [0, *clauses(text), len(text)]
    assert [text[start:end].strip() for start, end in pairwise(bounds)] == expected


@given(layouts.TEXTS)
def test_any_text(text: str) -> None:
    places, kinds = cuts(text)
    assert places.tolist() == sorted(set(places.tolist()))
    assert all(0 < place <= len(text) for place in places.tolist())
    assert set(kinds.tolist()) <= set(Cut)
    assert set(sentences.sentence_ends(text).tolist()) - {0} <= set(places.tolist())
    ends = clauses(text)
    assert ends == sorted(set(ends))


@given(st.lists(st.sampled_from([*layouts.PROSE, *layouts.RECORDS, *layouts.TURNS]), max_size=12))
def test_nothing_is_cut_behind_a_heading(lines: list[str]) -> None:
    text = "\n".join([*lines, "", "# A heading", "", "Text."])
    places, kinds = cuts(text)
    behind = text.rindex("# A heading") + len("# A heading")
    assert dict(zip(places.tolist(), kinds.tolist(), strict=True))[behind] == Cut.NONE
