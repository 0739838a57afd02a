"""Hits as they are printed: columns that stay columns, and JSON that stays a line."""

import io
import json

from rich.cells import cell_len
from rich.console import Console

from keyblock.ranking.order import ScoredBy
from service.command.hits import Hit, Passage
from service.command.output import json_lines, print_table, tab_lines

PASSAGE = Passage(4, 21, 2.5, 2, "a\triver\nof \x1b[31mé\u2028", [(2, 7)])
HITS = [
    Hit("a\tb.txt", "a\tb.txt:2", 0.75, ScoredBy.MODEL, [PASSAGE, PASSAGE._replace(line=9)], None, None),
    Hit("c.jsonl:7", "c.jsonl:7", 0.0, ScoredBy.ORDER, [], "Title", 0),
]


def test_json_lines() -> None:
    lines = b"".join(json_lines(HITS)).splitlines()
    first, second = map(json.loads, lines)
    assert first["blocks"][0]["text"] == PASSAGE.text
    assert "scored_by" not in first
    assert "page" not in first["blocks"][0]
    assert second == {
        "rank": 2, "relevance_score": 0.0, "input": "c.jsonl:7", "id": 0, "title": "Title", "scored_by": "order", "blocks": []
    }  # fmt: skip


def test_a_passage_of_a_file_with_pages_has_its_page() -> None:
    paged = Hit("a.pdf", "a.pdf, page 3", 0.75, ScoredBy.MODEL, [PASSAGE._replace(page=3), PASSAGE._replace(page=1)], None, None)
    assert [line.split(b"\t")[2] for line in tab_lines([paged])] == [b"a.pdf, page 3", b"a.pdf, page 1"]
    (line,) = map(json.loads, json_lines([paged]))
    assert [block["page"] for block in line["blocks"]] == [3, 1]


def test_tab_lines_have_four_fields_whatever_the_text() -> None:
    rows = [line.split("\t") for line in b"".join(tab_lines(HITS)).decode().removesuffix("\n").split("\n")]
    assert rows == [
        ["1", "0.7500", "a b.txt:2", "a river of ␛[31mé"],
        ["1", "0.7500", "a b.txt:9", "a river of ␛[31mé"],
        ["2", "0.0000", "c.jsonl:7", ""],
    ]


def test_a_table_obeys_no_escape_of_a_document() -> None:
    output = io.StringIO()
    print_table(Console(file=output, force_terminal=True, width=60, color_system="standard"), HITS)
    assert "\x1b[1;33mriver\x1b[0m" in output.getvalue()
    assert "\x1b[31m" not in output.getvalue()
    assert "nothing to read" in output.getvalue()


def test_a_passage_from_right_to_left_turns_nothing_around_it() -> None:
    """Each line of it stands between isolates, which take no room, and its columns stay columns."""
    passage = Passage(0, 44, 2.5, 1, "يمر نهر الدانوب (Danube) بمدينة فيينا وبودابست.", [(4, 7)])
    hits = [Hit("a.txt", "a.txt:1", 0.5, ScoredBy.MODEL, [passage, PASSAGE], None, None)]
    output = io.StringIO()
    print_table(Console(file=output, width=36), hits)
    lines = output.getvalue().splitlines()
    turned = [line for line in lines if any("\u0600" <= character <= "\u06ff" for character in line)]
    assert len(turned) > 1
    assert all(line.strip()[0] == "\u2068" and line.rstrip()[-1] == "\u2069" for line in turned)
    assert max(cell_len(line.rstrip()) for line in lines) <= 36
    assert not any(sign in line for line in lines if line not in turned for sign in "\u2068\u2069")
