"""The page: tables between its marks, nothing else touched, nothing invented where a part is missing."""

from pathlib import Path
from typing import Any

import pytest

from benchmarks.performance.report import BEGIN, END, PageError, put, report, summary

Record = dict[str, Any]
PAGE = Path(__file__).parents[3] / "docs" / "performance.md"


def cells(text: str, first: str) -> list[list[str]]:
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if row[0] == first]


def test_the_page_of_the_repository_has_its_marks() -> None:
    before, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    assert before
    assert END in rest


def test_text_stands_between_the_marks_and_can_be_put_again(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    for _ in range(2):
        put(page, "new")
        assert page.read_text(encoding="utf-8") == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter\n"


def test_a_page_without_marks_is_left_alone(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n", encoding="utf-8")
    with pytest.raises(PageError, match=r"page\.md has no place for the tables"):
        put(page, "new")
    assert page.read_text(encoding="utf-8") == f"{BEGIN}\n"


def test_every_part_is_reported(record: Record) -> None:
    text = report(record, "images/performance.png")
    (quick,) = cells(text, "quick (default)")
    assert quick == ["quick (default)", "512", "bf16", "8.00 (8.00 to 8.00)", "12.5", "15.6", "1.00", "0.50"]
    (mine,) = cells(text, "**KeyBlock, 512**")
    assert mine[4:] == ["50.0", "3.9", "4.00", "2.00"]
    assert "In this run the faster default is quick and the fastest peer is tuned." in text
    assert cells(text, "32 clients")[0][2] == "0.95"
    assert cells(text, "20,000") == [["20,000", "2.50 (2.50 to 2.50)"]]
    assert cells(text, "after 1,000 requests") == [["after 1,000 requests", "440", "1.0"]]
    assert "- gone is absent: pip ended with 1" in text
    assert "Preliminary" not in text
    assert "![Documents a second" in text
    assert "slow 0.0010" in text


def test_verdicts_stand_in_a_table_and_for_the_terminal(record: Record) -> None:
    (start,) = cells(report(record), "start to ready")
    assert start == ["start to ready", "at most 3.00 s", "**2.50 s**", "passed"]
    assert "memory after ten times the requests, over that before: 1.10, missed by 5%" in summary(record)


def test_a_part_alone(record: Record) -> None:
    text = report({**record, "parts": {"start": record["parts"]["start"]}})
    assert "not measured" in text
    assert "## Start" in text
    assert "## Memory" not in text


def test_small_sizes_are_called_preliminary(record: Record) -> None:
    record["parts"]["start"]["run"]["sizes"] = "quick"
    assert "**Preliminary**, small sizes: start." in report(record)
