"""keyblock-calibrate."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from training.commands.command import count, make_parser, quiet_transformers, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Calibrate a run."""
    parser = make_parser(
        "keyblock-calibrate", "Learn a run's fusion on dev; measure it at several budgets; write both into the run."
    )
    parser.add_argument("--run", type=Path, required=True, help="a run directory of keyblock-train")
    parser.add_argument("--collection", type=Path, action="append", required=True, help="a collection directory; may be repeated")
    parser.add_argument(
        "--budgets", type=count, nargs="+", help="budgets to measure: the range written is theirs; the run's own when left out"
    )
    parser.add_argument("--default", type=count, help="the budget served by default; the first of --budgets when left out")
    parser.add_argument("--queries", type=count, default=200, help="dev queries a collection")
    parser.add_argument("--depth", type=count, default=100, help="candidates a query")
    parser.add_argument(
        "--least", type=count, default=10, help="refuse to learn from fewer dev queries with a relevant candidate (%(default)s)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of tables")
    return run(_calibrate, parser, arguments)


def _calibrate(options: argparse.Namespace) -> None:
    from training.collections.collection import Collection
    from training.evaluation.calibrating import calibrate, calibration_tables

    quiet_transformers()
    collections = [Collection(path) for path in options.collection]
    asked = (options.budgets, options.default, options.queries, options.depth, options.least)
    fusion, quality = calibrate(options.run, collections, *asked)
    print(json.dumps({"fusion": fusion.model_dump(), **quality}, indent=2) if options.json else calibration_tables(fusion, quality))


if __name__ == "__main__":
    sys.exit(main())
