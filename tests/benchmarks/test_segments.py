"""What the measure of segmenters takes for parts of a text, and for a cut in two."""

import pytest

from benchmarks.segments import (
    MEETING,
    ROWS,
    Kind,
    Part,
    line_parts,
    markdown_parts,
    measured,
    pipelines,
    python_parts,
    record_parts,
    table,
)


def shown(text: str, parts: list[Part]) -> list[str]:
    return [text[part.start : part.end] for part in parts]


def test_parts_of_markdown() -> None:
    parts = [
        "# Title\n\nIts text,\nbroken.",
        "- one",
        "- two",
        "| a |\n| --- |\n| 1 |",
        "| 2 |",
        "```sh\n- no item",
        "- nor this\n```",
        "End",
    ]
    text = "\n".join(parts[:6]) + "\n\n" + "\n\n".join(parts[6:])
    assert shown(text, markdown_parts(text)) == parts


def test_parts_of_python() -> None:
    text = '"""About."""\n@cache\ndef f():\n    x = (1,\n         2)\n    return x\n'
    found = python_parts(text)
    assert shown(text, found) == ["@cache\ndef f():\n    x = (1,\n         2)\n    return x", "x = (1,\n         2)", "return x"]
    assert [part.whole for part in found] == [False, True, True]


def test_records_and_turns() -> None:
    rows = table(3)
    assert shown(rows, record_parts(rows)) == rows.splitlines()
    turns = shown(MEETING, line_parts(MEETING))
    assert turns[3].endswith("until the divers\nhave been there.")
    assert all(turn.partition(":")[0] in ("Chair", "Engineer", "Treasurer", "Ode") for turn in turns)


def test_structure_cuts_between_records_and_the_paper_s_segmenter_inside_them() -> None:
    made = pipelines()
    kind = Kind([table(ROWS // 50)], record_parts, "")
    assert measured(kind, made["structure"])[1:] == (1.0, 0.0, None)
    _, at_parts, cut, _ = measured(kind, made["cogltx"])
    assert at_parts == pytest.approx(0, abs=0.05)
    assert cut == pytest.approx(0.45, abs=0.15)


def test_a_heading_that_is_left_behind_is_counted() -> None:
    made = pipelines()
    text = "\n\n".join(f"## Part {n}\n\n{'The committee met in the usual room and spoke at length. ' * 5}" for n in range(20))
    assert measured(Kind([text], markdown_parts, ""), made["structure"])[3] == 0
    assert measured(Kind([text], markdown_parts, ""), made["whole_sentences"])[3] > 0.1
