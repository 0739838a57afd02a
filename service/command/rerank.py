"""keyblock rerank: ranks files for a query, with a bundle in this process or by a running service."""

import argparse
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from keyblock.client import Client
from service.command.hits import Best, batches
from service.command.inputs import AUTO, FORMATS, Files
from service.command.output import json_lines, print_table, standard_output, tab_lines
from service.command.rankers import Asked, CommandError, Ranker, RemoteRanker
from service.command.report import Report
from service.command.text import Highlighter

API_KEY = "KEYBLOCK_API_KEY"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of keyblock rerank."""
    parser.add_argument("query", metavar="QUERY", type=_query, help="what is looked for")
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        help="a text, a PDF, EPUB, DOCX or HTML file, JSON lines ({text, title?, id?}), a directory with -r, or - for stdin",
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--bundle", type=Path, help="bundle to rank with (KEYBLOCK_BUNDLE, or the embedded model)")
    parser.add_argument("--model", metavar="NAME", help="of several bundles, the one to rank with (the first)")
    where.add_argument("--url", help=f"rank by a running service, with the API key in {API_KEY} if it is set")
    parser.add_argument("--timeout", type=_seconds, default=60.0, help="seconds a request to the service may take (60)")
    parser.add_argument("-n", "--top", type=_count, default=10, metavar="N", help="documents to show, best first; 0 for all (10)")
    parser.add_argument("--blocks", type=_count, default=2, metavar="N", help="passages to show of each; 0 for none (2)")
    parser.add_argument("--budget", type=_tokens, metavar="TOKENS", help="tokens the model reads of a document")
    parser.add_argument("--json", action="store_true", help="print JSON lines, a document each")
    parser.add_argument("-r", "--recursive", action="store_true", help="read the files in directories, hidden ones left out")
    parser.add_argument("-g", "--glob", action="append", default=[], help="in directories, files of this name only; repeatable")
    parser.add_argument("--format", choices=FORMATS, default=AUTO, help="what the files hold; auto decides by their names (auto)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, report: Report) -> int:
    """Rank the files and print the result. Returns the exit code. Raises the errors of the ranker."""
    files = Files(options.files, report, recursive=options.recursive, globs=options.glob, form=options.format)
    with open_ranker(options, report) as ranker:
        best = Best(options.top, options.blocks, Highlighter(ranker.analyzer, options.query))
        with progress_bar(files.total) as advance:
            for batch in batches(files.read(), ranker.documents, ranker.chars):
                best.add(ranker, batch)
                advance(len(batch))
    if not best:
        report.fail("there is nothing to rank")
    show(best, as_json=options.json)
    return int(report.failed)


@contextmanager
def open_ranker(options: argparse.Namespace, report: Report) -> Iterator[Ranker]:
    """The named service, or else a bundle in this process. Raises CommandError, and the errors of these."""
    asked = Asked(options.query, options.budget, options.model, options.top)
    if options.url is not None:
        with Client(options.url, api_key=os.environ.get(API_KEY), timeout=options.timeout) as client:
            yield RemoteRanker(client, asked, report)
        return
    try:
        from service.command.local import open_local
    except ImportError as error:
        advice = "to rank in this process, install the extras cpu (or gpu) and serve, or name a running service with --url"
        raise CommandError(f"{advice} ({error})") from None
    yield open_local(options.bundle, asked, report)


@contextmanager
def progress_bar(total: int | None) -> Iterator[Any]:
    """A progress bar on stderr, if that is a terminal; it disappears at the end. Gives a function that takes finished documents."""
    console = Console(stderr=True)
    columns = (TextColumn("ranking"), BarColumn(), MofNCompleteColumn(), TextColumn("documents,"), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task("", total=total)
        yield lambda count: progress.advance(task, count)


def show(best: Best, *, as_json: bool) -> None:
    """Print a table on a terminal, otherwise a line of tab-separated values for each passage, or JSON lines on request."""
    output = standard_output()
    console = Console(highlight=False)
    if not as_json and console.is_terminal:
        print_table(console, best)
        return
    for line in json_lines(best) if as_json else tab_lines(best):
        output.write(line)
    output.flush()


def _query(value: str) -> str:
    if not value.strip():
        raise argparse.ArgumentTypeError("is empty: say what to rank the documents for")
    return value


def _count(value: str) -> int:
    return _at_least(value, 0)


def _tokens(value: str) -> int:
    return _at_least(value, 1)


def _at_least(value: str, least: int) -> int:
    if not value.isascii() or not value.isdigit() or int(value) < least:
        raise argparse.ArgumentTypeError(f"must be a whole number from {least} on, not {value!r}")
    return int(value)


def _seconds(value: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 86_400:
        raise argparse.ArgumentTypeError(f"must be a number of seconds above 0, not {value!r}")
    return seconds
