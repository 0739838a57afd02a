"""keyblock-candidates."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from training.commands.command import count, make_parser, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Write first-stage candidates."""
    parser = make_parser("keyblock-candidates", "Write a first-stage BM25 run for every query of a split.")
    parser.add_argument("--collection", type=Path, required=True, help="a collection directory")
    parser.add_argument(
        "--split",
        default="train",
        help="the queries; their candidates are documents that its run names, or any if it has no run",
    )
    parser.add_argument("--depth", type=count, default=100, help="documents a query")
    parser.add_argument("--out", type=Path, required=True, help="a TREC run; gzipped when the name ends in .gz")
    parser.add_argument("--json", action="store_true", help="print what was written as JSON")
    return run(_candidates, parser, arguments)


def _candidates(options: argparse.Namespace) -> None:
    from training.data.collection import Collection
    from training.data.files import write_run
    from training.data.first_stage import complete_run

    options.out.parent.mkdir(parents=True, exist_ok=True)
    run = complete_run(Collection(options.collection), options.split, options.depth)
    write_run(run, options.out, "bm25")
    written = {"queries": len(run), "candidates": sum(map(len, run.values())), "out": str(options.out)}
    print(json.dumps(written) if options.json else "{out}: {candidates:,} candidates of {queries:,} queries".format(**written))
