"""Prints hits: a table for people, lines of tab-separated values for pipes, JSON lines for programs."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from keyblock.client.bodies import as_json
from keyblock.ranking.order import ScoredBy
from service.command.hits import Hit, Passage, place_of
from service.command.text import in_a_line, pieces, right_to_left

FOUND, NAME, FAINT = "bold yellow", "bold cyan", "dim"
ISOLATE, END = "\u2068", "\u2069"  # text between them has its own direction, and does not affect the text around it


def json_lines(hits: Iterable[Hit]) -> Iterator[bytes]:
    """A JSON object for each document, with the names of POST /rerank."""
    for rank, hit in enumerate(hits, 1):
        line: dict[str, Any] = {"rank": rank, "relevance_score": hit.score, "input": hit.input}
        line |= {name: value for name in ("id", "title") if (value := getattr(hit, name)) is not None}
        if hit.scored_by is not ScoredBy.MODEL:
            line["scored_by"] = hit.scored_by.value
        yield as_json(line | {"blocks": list(map(_block, hit.passages))}) + b"\n"


def tab_lines(hits: Iterable[Hit]) -> Iterator[bytes]:
    """A line for each passage: rank, score, place, text; a document without a passage has one line too."""
    for rank, hit in enumerate(hits, 1):
        passages: Sequence[Passage | None] = hit.passages or [None]
        for passage in passages:
            text = "" if passage is None else in_a_line(passage.text).strip()
            fields = (str(rank), f"{hit.score:.4f}", in_a_line(_place(hit, passage)), text)
            yield "\t".join(fields).encode() + b"\n"


def table(hits: Iterable[Hit]) -> Table:
    """A row for each document: rank, score, and its passages with the query's words highlighted."""
    rows = Table(box=None, header_style=FAINT, padding=(0, 2, 0, 0), pad_edge=False)
    rows.add_column("", justify="right", no_wrap=True)
    rows.add_column("score", no_wrap=True)
    rows.add_column("document, and what decided it", overflow="fold")
    for rank, hit in enumerate(hits, 1):
        rows.add_row(Text(str(rank), FAINT), f"{hit.score:.3f}", _cell(hit))
    return rows


def print_table(console: Console, hits: Iterable[Hit]) -> None:
    """Print the table, as wide as the terminal."""
    console.print(table(hits))


class Directed:
    """A text with words from right to left: each line is shown in the direction of its first letter, and isolated."""

    def __init__(self, text: Text) -> None:
        self._text = text

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        """The width of the text."""
        return Measurement.get(console, options, self._text)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """The lines, cut to the width."""
        for line in self._text.wrap(console, options.max_width, overflow="fold"):
            line.rstrip()
            yield Text.assemble(ISOLATE, line, END)


def _cell(hit: Hit) -> RenderableType:
    head = Text(in_a_line(hit.place), NAME)
    if about := in_a_line(" ".join(str(part) for part in (hit.id, hit.title) if part is not None)).strip():
        head.append(f"  {about}", FAINT)
    lines = [head]
    if not hit.passages and hit.scored_by is not ScoredBy.MODEL:
        lines.append(Text("nothing to read", FAINT))
    lines += map(_highlighted, hit.passages)
    return Group(*(Directed(line) if right_to_left(line.plain) else line for line in lines))


def _highlighted(passage: Passage) -> Text:
    text = Text()
    for piece in pieces(passage.text, passage.highlights):
        text.append(in_a_line(piece.text), FOUND if piece.found else None)
    text.rstrip()
    return text


def _place(hit: Hit, passage: Passage | None) -> str:
    return hit.place if passage is None or hit.place == hit.input else place_of(hit.input, passage)


def _block(passage: Passage) -> dict[str, Any]:
    """A passage in JSON; without `page` if it has none."""
    return {name: value for name, value in passage._asdict().items() if value is not None}
