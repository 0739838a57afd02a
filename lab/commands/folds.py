"""keyblock-folds."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from training.commands.command import count, make_parser, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the collections of a cross-validation."""
    parser = make_parser(
        "keyblock-folds", "Make the collections of a k-fold cross-validation: a train, dev and test split in each."
    )
    parser.add_argument("--collection", type=Path, required=True, help="a collection directory")
    parser.add_argument("--folds", type=count, default=5, help="how many; one tests, the next validates, the others train")
    parser.add_argument("--seed", type=int, default=0, help="decides which query is in which fold")
    parser.add_argument("--queries", type=Path, help="a file of query ids; every judged query when left out")
    parser.add_argument(
        "--given", type=Path, nargs="+", help="folds of others: a file of query ids each, or one JSON list of lists"
    )
    parser.add_argument("--out", type=Path, required=True, help="directory for the collections NAME-fold-1 ... and NAME-joined")
    parser.add_argument("--json", action="store_true", help="print the directories as JSON")
    return run(_folds, parser, arguments)


def _folds(options: argparse.Namespace) -> None:
    from lab.folds import judged_queries, read_folds, write_folds
    from training.data.collection import Collection
    from training.data.files import numbered_lines
    from training.data.folds import make_folds

    collection = Collection(options.collection)
    if options.given:
        folds = read_folds(options.given)
    else:
        listed = [line.strip() for _, line in numbered_lines(options.queries)] if options.queries else judged_queries(collection)
        folds = make_folds(listed, options.folds, options.seed)
    paths = [str(path) for path in write_folds(collection, folds, options.out)]
    print(json.dumps(paths) if options.json else "\n".join(paths))
