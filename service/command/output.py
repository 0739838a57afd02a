"""Prints hits: a table for people, lines of tab-separated values for pipes, JSON lines for programs."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, BinaryIO

from rich.console import Console
from rich.table import Table
from rich.text import Text

from keyblock.client.bodies import as_json
from keyblock.results import MODEL
from service.command.hits import Hit, Passage, place_of
from service.command.rankers import CommandError
from service.command.text import in_a_line

FOUND, NAME, FAINT = "bold yellow", "bold cyan", "dim"


def standard_output() -> BinaryIO:
    """Standard output for bytes. Whoever writes flushes it, or errors would come as the interpreter ends. Raises CommandError."""
    if sys.stdout is None:
        raise CommandError("there is nowhere to write to: standard output is closed")
    return sys.stdout.buffer


def json_lines(hits: Iterable[Hit]) -> Iterator[bytes]:
    """A JSON object for each document, with the names of POST /rerank."""
    for rank, hit in enumerate(hits, 1):
        line: dict[str, Any] = {"rank": rank, "relevance_score": hit.score, "input": hit.input}
        line |= {name: value for name in ("id", "title") if (value := getattr(hit, name)) is not None}
        if hit.scored_by != MODEL:
            line["scored_by"] = hit.scored_by
        yield as_json(line | {"blocks": list(map(_block, hit.passages))}) + b"\n"


def tab_lines(hits: Iterable[Hit]) -> Iterator[bytes]:
    """A line for each passage: rank, score, place, text; a document without a passage has one line too."""
    for rank, hit in enumerate(hits, 1):
        passages: Sequence[Passage | None] = hit.passages or [None]
        for passage in passages:
            text = "" if passage is None else in_a_line(passage.text).strip()
            fields = (str(rank), f"{hit.score:.4f}", in_a_line(_place(hit, passage)), text)
            yield "\t".join(fields).encode() + b"\n"


def print_table(console: Console, hits: Iterable[Hit]) -> None:
    """Print a row for each document, as wide as the terminal: rank, score, and its passages with the query's words highlighted."""
    rows = Table(box=None, header_style=FAINT, padding=(0, 2, 0, 0), pad_edge=False)
    rows.add_column("", justify="right", no_wrap=True)
    rows.add_column("score", no_wrap=True)
    rows.add_column("document, and what decided it", overflow="fold")
    for rank, hit in enumerate(hits, 1):
        rows.add_row(Text(str(rank), FAINT), f"{hit.score:.3f}", _cell(hit))
    console.print(rows)


def _cell(hit: Hit) -> Text:
    head = Text(in_a_line(hit.place), NAME)
    if about := in_a_line(" ".join(str(part) for part in (hit.id, hit.title) if part is not None)).strip():
        head.append(f"  {about}", FAINT)
    lines = [head]
    if not hit.passages and hit.scored_by != MODEL:
        lines.append(Text("nothing to read", FAINT))
    lines += map(_highlighted, hit.passages)
    return Text("\n").join(lines)


def _highlighted(passage: Passage) -> Text:
    text, place = Text(), 0
    for start, end in passage.highlights:
        text.append(in_a_line(passage.text[place:start])).append(in_a_line(passage.text[start:end]), FOUND)
        place = end
    text.append(in_a_line(passage.text[place:])).rstrip()
    return text


def _place(hit: Hit, passage: Passage | None) -> str:
    return hit.place if passage is None or hit.place == hit.input else place_of(hit.input, passage)


def _block(passage: Passage) -> dict[str, Any]:
    """A passage in JSON; without `page` if it has none."""
    return {name: value for name, value in passage._asdict().items() if value is not None}
