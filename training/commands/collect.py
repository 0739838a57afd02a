"""keyblock-collect."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from training.commands.command import make_parser, run
from training.data.tables import COLUMNS, collect, deal, read_tables


def main(arguments: Sequence[str] | None = None) -> int:
    """Make a collection of a table."""
    parser = make_parser(
        "keyblock-collect",
        "Make a collection of tables: a row for each question with a document (its text or the path of its file), and how relevant "
        "it is (a grade, true or false) or the passage that answers. Without either the document counts as relevant.",
    )
    parser.add_argument("table", type=Path, nargs="+", help=".csv, .tsv, .jsonl (each also .gz) or .parquet")
    parser.add_argument("--out", type=Path, required=True, help="the directory to make; its name is the collection's")
    parser.add_argument(
        "--column",
        type=_column,
        action="append",
        default=[],
        metavar="MEANING=NAME",
        help=f"a column of another name; found are {'; '.join(', '.join(names) for names in COLUMNS.values())}",
    )
    parser.add_argument("--documents", type=Path, help="what paths of documents are relative to; the table's directory if left out")
    parser.add_argument("--dev", type=_share, default=0.2, help="share of the questions for split dev (%(default)s)")
    parser.add_argument("--test", type=_share, default=0.0, help="share of the questions for split test (%(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="decides which question is in which split")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")
    return run(_collect, parser, arguments)


def _column(text: str) -> tuple[str, str]:
    meaning, _, name = text.partition("=")
    if meaning not in COLUMNS or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not MEANING=NAME with one of {', '.join(COLUMNS)}")
    return meaning, name


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = -1.0
    if not 0 <= share < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no share from 0 to below 1")
    return share


def _collect(options: argparse.Namespace) -> None:
    if options.out.exists():
        raise FileExistsError(f"{options.out}: exists already; give another --out")
    table = read_tables(options.table, options.documents, dict(options.column))
    written = collect(table, options.out, deal(table, options.dev, options.test, options.seed))
    for what, count in table.notes.items():
        print(f"{count:,} {what}", file=sys.stderr)
    parts = ", ".join(f"{count:,} {what}" for what, count in written.items())
    print(json.dumps(written | {"notes": table.notes}) if options.json else f"{options.out}: {parts}")
