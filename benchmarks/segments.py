"""Where segmenters cut texts of four kinds: the shares of cuts between parts, and pictures.

    python -m benchmarks.segments [--data DATA] [--out docs/images]

The texts are this repository's Markdown pages, its Python files, a CSV of 5,000 invented rows, and meetings: the dev meetings of
DATA/qmsum if given, else the one in this file. A part is a paragraph, an item, a row, a statement, a record or a turn. A heading
forms a part with the text after it, and a table's head with its first row. For each kind and segmenter it prints: blocks, the share
of blocks that begin with a part, the share of parts that fit a block and are cut in two, and the share of headings that end a
block. With --out it draws how each segmenter cuts the same text.
"""

import argparse
import ast
import csv
import io
import itertools
import random
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from keyblock.bundle import load_bundle
from keyblock.pipeline import Pipeline, PipelineConfig

ROOT = Path(__file__).resolve().parents[1]
BUNDLE = ROOT / "models" / "default"
SEGMENTERS = ("cogltx", "whole_sentences", "structure")
ROWS = 5000
LONGEST = 63  # tokens of a block
DPI = 110  # at which a character of the pictures is 7 pixels wide
MEETING = """\
Chair: Good morning. Shall we begin with the bridge?
Engineer: Yes. We measured it again on Monday, and the second pier has moved by four millimetres since spring.
Chair: Is that much?
Engineer: For a year it would be. For three months it is more than we like. I would close one lane until the divers
have been there.
Treasurer: What does a lane cost us?
Engineer: About nine thousand a week, if the detour is signed.
Treasurer: And the divers?
Engineer: Six thousand, once. They can come on the twelfth.
Chair: Then let us decide: one lane is closed from Thursday, and the divers come on the twelfth. Anyone against?
Treasurer: No, but I want the signs to say how long it takes. Last year people waited an hour and then wrote to me.
Engineer: Agreed.
Chair: Good. The library is next. Ms. Ode, you had a question about the roof.
Ode: It is three questions, really. Who repairs it, who pays, and when may we put the books back? They have stood in
the gymnasium since March.
Chair: The builder repairs it and pays, since it leaked within the warranty; he says two weeks.
Ode: He said so in June.
"""


class Part(NamedTuple):
    """A part of a text that belongs together.

    Attributes:
        start: its start, in code points.
        end: its end, in code points.
        whole: whether it should be in one block; else only its start counts, as for a function.
    """

    start: int
    end: int
    whole: bool = True


class Kind(NamedTuple):
    """A kind of text.

    Attributes:
        texts: the texts that are measured.
        parts: finds the parts of a text.
        shown: the text of the picture.
    """

    texts: list[str]
    parts: Callable[[str], list[Part]]
    shown: str


def lines_of(text: str) -> Iterator[tuple[int, str]]:
    """The start of each line, and its text without the line break."""
    start = 0
    for line in text.splitlines(keepends=True):
        yield start, line.rstrip("\n")
        start += len(line)


def between(text: str, starts: Sequence[int]) -> list[Part]:
    """The parts that begin at these places, without trailing white space."""
    return [Part(start, start + len(text[start:end].rstrip())) for start, end in itertools.pairwise([*starts, len(text)])]


def markdown_parts(text: str) -> list[Part]:
    """Paragraphs, items and rows; a heading forms a part with the text after it, a table's head with its first row."""
    starts, fenced, blank, heads = list[int](), False, True, False
    for start, line in lines_of(text):
        opens = line.startswith("```")
        begins = blank or (not fenced and re.match(r"[-*] |\d+\. |\||#|```", line) is not None)
        rule = re.fullmatch(r"\|[\s:|-]+\|", line) is not None
        if line.strip() and begins and not heads and not rule:
            starts.append(start)
        heads = (not line.strip() and heads) or rule or (not fenced and line.startswith("#"))
        blank, fenced = not line.strip(), fenced != opens
    return between(text, starts)


def python_parts(text: str) -> list[Part]:
    """Statements with their decorators; of functions, classes and other compound statements only the start counts."""
    begins = [start for start, _ in lines_of(text)]
    found = []
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.stmt) or (isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)):
            continue
        first = min([node.lineno, *(one.lineno for one in getattr(node, "decorator_list", ()))])
        start = begins[first - 1] + len(text[begins[first - 1] :]) - len(text[begins[first - 1] :].lstrip())
        found.append(Part(start, begins[node.end_lineno - 1] + node.end_col_offset, not hasattr(node, "body")))
    return sorted(found)


def line_parts(text: str) -> list[Part]:
    """Records and turns, which each begin a line; a line that begins in lower case continues the one before."""
    return between(text, [start for start, line in lines_of(text) if line and not line[0].islower()])


def record_parts(text: str) -> list[Part]:
    """CSV records, one for each line."""
    return between(text, [start for start, line in lines_of(text) if line])


def table(rows: int) -> str:
    """A CSV of `rows` invented rows."""
    drawn = random.Random(17)
    towns = "Vienna Linz Graz Salzburg Innsbruck Bregenz Eisenstadt Klagenfurt".split()
    notes = ("", "paid late", "asks for an invoice, in two copies", "new address; see file", 'calls himself "the Duke"')
    written = io.StringIO()
    writer = csv.writer(written, lineterminator="\n")
    writer.writerow(["id", "name", "town", "since", "balance", "note"])
    for number in range(1, rows + 1):
        name = f"{drawn.choice('ABCDEFGHKLMNRST')}. {drawn.choice(['Huber', 'Gruber', 'Maier', 'Steiner', 'Moser', 'Wagner'])}"
        since = f"{drawn.randint(1, 28)}.{drawn.randint(1, 12)}.{drawn.randint(1990, 2025)}"
        writer.writerow([number, name, drawn.choice(towns), since, f"{drawn.uniform(-900, 9000):.2f}", drawn.choice(notes)])
    return written.getvalue()


def meetings(data: Path | None) -> list[str]:
    """The meetings of QMSum's dev queries, or the one in this file."""
    if data is None:
        return [MEETING]
    from training.collections.collection import Collection

    collection = Collection(data / "qmsum")
    names = {span.doc_id for query in collection.split("dev") for span in collection.spans.get(query, ())}
    return [collection.document(name).text for name in sorted(names)]


def kinds(data: Path | None) -> dict[str, Kind]:
    """The kinds of texts, by name."""
    pages = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))]
    code = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "keyblock").rglob("*.py"))]
    rows = table(ROWS)
    shown_page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    shown_code = (ROOT / "keyblock" / "registry.py").read_text(encoding="utf-8")
    return {
        "markdown": Kind(pages, markdown_parts, shown_page[: shown_page.index("| option")]),
        "python": Kind(code, python_parts, shown_code),
        "csv": Kind([rows], record_parts, "".join(rows.splitlines(keepends=True)[:24])),
        "meeting": Kind(meetings(data), line_parts, MEETING),
    }


def pipelines() -> dict[str, Pipeline]:
    """A pipeline for each segmenter, with the embedded bundle's tokenizer."""
    bundle = load_bundle(BUNDLE)
    made = {}
    for name in SEGMENTERS:
        config = PipelineConfig.model_validate({"segmenter": {"name": name, "block_tokens": LONGEST}, "selector": {"name": "bm25"}})
        made[name] = Pipeline(config, bundle.tokenizer, bundle.frequencies)
    return made


def block_starts(pipeline: Pipeline, text: str) -> list[int]:
    """The starts of the blocks, ascending, in code points."""
    return pipeline.prepare_document(text).starts.tolist()


def fitting(pipeline: Pipeline, text: str, parts: Iterable[Part]) -> list[Part]:
    """The parts that should be whole and have at most LONGEST tokens."""
    whole = [part for part in parts if part.whole]
    lengths = [len(encoding.ids) for encoding in pipeline.tokenizer.encode([text[part.start : part.end] for part in whole])]
    return [part for part, length in zip(whole, lengths, strict=True) if length <= LONGEST]


def measured(kind: Kind, pipeline: Pipeline) -> tuple[int, float | None, float | None, float | None]:
    """The number of blocks; the shares of cuts before a part, of fitting parts cut in two, and of headings that end a block."""
    blocks, at_parts, cut, left = 0, list[bool](), list[bool](), list[bool]()
    for text in kind.texts:
        parts, starts = kind.parts(text), np.asarray(block_starts(pipeline, text))
        blocks += len(starts)
        begins = {part.start for part in parts}
        at_parts += [start in begins for start in starts[1:].tolist()]
        for part in fitting(pipeline, text, parts):
            cut.append(bool(((starts > part.start) & (starts < part.end)).any()))
        for found in re.finditer(r"^#{1,6} .*\n+(?=[^\n])", text, re.MULTILINE) if kind.parts is markdown_parts else ():
            left.append(found.end() in starts)
    return blocks, share(at_parts), share(cut), share(left)


def share(found: Sequence[bool]) -> float | None:
    """The share of true values; None for an empty list."""
    return sum(found) / len(found) if found else None


def rows_of(text: str, width: int) -> Iterator[tuple[int, str]]:
    """The start and the text of each line, wrapped to `width`."""
    for start, line in lines_of(text):
        place = 0
        for row in textwrap.wrap(line, width, drop_whitespace=False, break_on_hyphens=False) or [""]:
            yield start + place, row
            place += len(row)


def draw(name: str, kind: Kind, made: dict[str, Pipeline], out: Path, *, width: int = 62, most: int = 30) -> None:
    """Draw the blocks that each segmenter makes of the same text, in two alternating colours."""
    from matplotlib import pyplot
    from matplotlib.patches import Rectangle

    rows = list(rows_of(kind.shown, width))[:most]
    figure, panels = pyplot.subplots(
        1, len(made), figsize=(len(made) * (width + 2) * 1.025 * 7 / DPI, (len(rows) + 2) * 14.5 / DPI)
    )
    figure.subplots_adjust(0.005, 0.01, 0.995, 1 - 1.6 / (len(rows) + 2), wspace=0.03)
    for panel, (segmenter, pipeline) in zip(panels, made.items(), strict=True):
        panel.set(xlim=(0, width + 2), ylim=(len(rows), 0), xticks=[], yticks=[])
        panel.set_title(segmenter, fontsize=9, pad=3)
        starts = block_starts(pipeline, kind.shown)
        for number, (place, row) in enumerate(rows):
            for block, (start, end) in enumerate(itertools.pairwise([*starts, len(kind.shown)])):
                first, last = max(start - place, 0), min(end - place, len(row))
                if first < last or (first == last == 0 and start < place < end):
                    colour = "#ffe3a6" if block % 2 else "#cfe3ff"
                    panel.add_patch(Rectangle((first + 0.5, number), max(last - first, 0.4), 1, color=colour, linewidth=0))
                if place <= start < place + max(len(row), 1) and block:
                    panel.plot([first + 0.5] * 2, [number, number + 1], color="#c0392b", linewidth=1.6)
            panel.text(0.5, number + 0.74, row.replace("$", r"\$"), fontsize=7, family="DejaVu Sans Mono")
    figure.savefig(out / f"segments-{name}.png", dpi=DPI, metadata={"Software": None})
    pyplot.close(figure)


def main() -> None:
    """Print a row for each kind and segmenter; with --out draw pictures, too."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="the directory of qmsum")
    parser.add_argument("--out", type=Path, help="a directory for pictures")
    given = parser.parse_args()
    made = pipelines()
    print(f"| | segmenter | blocks | begin with a part | parts cut in two | headings left behind |\n|{' --- |' * 6}")
    for name, kind in kinds(given.data).items():
        for segmenter, pipeline in made.items():
            blocks, *shares = measured(kind, pipeline)
            shown = " | ".join("" if one is None else f"{one:.1%}" for one in shares)
            print(f"| {name} | `{segmenter}` | {blocks} | {shown} |", flush=True)
        if given.out:
            draw(name, kind, made, given.out)


if __name__ == "__main__":
    main()
