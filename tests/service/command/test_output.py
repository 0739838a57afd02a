"""The best hits so far, and how they are printed."""

import io
import re
from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from keyblock.client import Result
from keyblock.fusion import Activation
from keyblock.ranking.order import GROUPS, ScoredBy
from keyblock.text.analyzer import Analyzer, AnalyzerConfig
from service.command.hits import Best, Hit, Passage, batches, place_of
from service.command.inputs import Input
from service.command.output import print_table, tab_lines
from service.command.text import Highlighter

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
PASSAGE = Passage(4, 21, 2.5, 2, "a\triver\nof \x1b[31mé\u2028", [(2, 7)])
HITS = [
    Hit("a\tb.txt", "a\tb.txt:2", 0.75, ScoredBy.MODEL, [PASSAGE, PASSAGE._replace(line=9)], None, None),
    Hit("c.jsonl:7", "c.jsonl:7", 0.0, ScoredBy.ORDER, [], "Title", 0),
]


def test_tab_lines_have_four_fields_whatever_the_text() -> None:
    rows = [line.split("\t") for line in b"".join(tab_lines(HITS)).decode().removesuffix("\n").split("\n")]
    assert rows == [
        ["1", "0.7500", "a b.txt:2", "a river of ␛[31mé"],
        ["1", "0.7500", "a b.txt:9", "a river of ␛[31mé"],
        ["2", "0.0000", "c.jsonl:7", ""],
    ]


def test_a_passage_of_a_file_with_pages_is_named_by_its_page() -> None:
    paged = PASSAGE._replace(page=3)
    (line,) = tab_lines([HITS[0]._replace(input="a.pdf", place=place_of("a.pdf", paged), passages=[paged])])
    assert line.split(b"\t")[2] == b"a.pdf, page 3"


def table(hits: Sequence[Hit], width: int = 60) -> str:
    """As a terminal gets it."""
    output = io.StringIO()
    print_table(Console(file=output, force_terminal=True, width=width, color_system="standard"), hits)
    return output.getvalue()


def test_a_table_obeys_no_escape_of_a_document() -> None:
    assert "a \x1b[1;33mriver\x1b[0m of ␛[31mé" in table(HITS)
    assert "\x1b[31m" not in table(HITS)
    assert "nothing to read" in table(HITS)


def test_wide_characters_fit_the_terminal() -> None:
    text = "隅田川は東京都を流れる。" * 8 + "\x1b[31m 😀👨‍👩‍👧 e\u0301 النهر river " * 5
    lines = ESCAPE.sub("", table([HITS[0]._replace(passages=[Passage(0, len(text), 1.0, 1, text, [])])], width=40)).splitlines()
    assert max(map(cell_len, lines)) <= 40
    assert "隅田川は東京都を流れる。" in "".join(lines).replace(" ", "")


ANALYZER = Analyzer(AnalyzerConfig())


class Known:
    """A ranker that knows what there is to find: groups and scores, None for a refused document."""

    analyzer, activation, documents, chars = ANALYZER, Activation(), 3, 100

    def __init__(self, found: Sequence[tuple[int, float] | None]) -> None:
        self._found = iter(found)

    def rank(self, inputs: Sequence[Input]) -> list[Result]:
        known = [next(self._found) for _ in inputs]
        return [Result(number, one[1], scored_by=GROUPS[one[0]]) for number, one in enumerate(known) if one is not None]


FOUND = st.none() | st.tuples(st.integers(0, 2), st.integers(-3, 3).map(float))


@given(st.lists(FOUND, max_size=30), st.integers(0, 8))
def test_the_best_are_those_of_all(found: list[tuple[int, float] | None], top: int) -> None:
    inputs = [Input(str(number), "x" * number) for number in range(len(found))]
    best, ranker = Best(top, 1, Highlighter(ANALYZER, "q")), Known(found)
    for batch in batches(inputs, ranker.documents, ranker.chars):
        best.add(ranker, batch)
    known = [(one[0], -one[1], number) for number, one in enumerate(found) if one is not None]
    assert [hit.input for hit in best] == [str(number) for *_, number in sorted(known)][: top or None]
    assert len(best) == len(list(best))


@given(st.lists(st.integers(0, 200), max_size=30))
def test_batches_are_of_all_inputs_in_order(sizes: list[int]) -> None:
    inputs = [Input(str(number), "x" * size) for number, size in enumerate(sizes)]
    made = list(batches(inputs, 3, 100))
    assert [one for batch in made for one in batch] == inputs
    assert all(1 <= len(batch) <= 3 for batch in made)
    assert all(len(batch) == 1 or sum(len(one.text) for one in batch) <= 100 for batch in made)
