"""keyblock-calibrate."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from keyblock.fusion import FIRST_STAGE_FUSIONS
from training.commands.command import count, make_parser, quiet_transformers, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Calibrate a run or a bundle."""
    parser = make_parser(
        "keyblock-calibrate",
        "Learn on dev what a run or bundle adds to its model's logit, and how much of a document it reads; write it into the run, "
        "or into a copy of the bundle, with what was measured.",
    )
    system = parser.add_mutually_exclusive_group(required=True)
    system.add_argument("--run", type=Path, help="a run directory of keyblock-train: it is changed in place")
    system.add_argument("--bundle", type=Path, help="a bundle, exported or imported: it stays as it is, see --out")
    parser.add_argument("--out", type=Path, help="where the copy of the --bundle goes: a new or empty directory")
    parser.add_argument("--collection", type=Path, action="append", required=True, help="a collection directory; may be repeated")
    parser.add_argument(
        "--budgets",
        type=count,
        nargs="+",
        default=[],
        help="budgets to measure, which become the range; its own, and its range, when left out",
    )
    parser.add_argument(
        "--passages", type=count, nargs="+", default=[], help="numbers of passages to measure, where passages are read one by one"
    )
    parser.add_argument(
        "--default",
        type=count,
        help="the budget served by default; when left out, the setting of fewest tokens within a standard error of the best RR@10",
    )
    parser.add_argument("--queries", type=count, default=200, help="dev queries a collection")
    parser.add_argument("--depth", type=count, default=100, help="candidates a query")
    parser.add_argument(
        "--least", type=count, default=10, help="refuse to learn from fewer dev queries with a relevant candidate (%(default)s)"
    )
    parser.add_argument(
        "--first-stage",
        choices=FIRST_STAGE_FUSIONS.names(),
        help="learn this fusion with the first stage too: for requests that send first_stage_scores",
    )
    parser.add_argument(
        "--second-look",
        type=count,
        nargs=2,
        metavar=("DOCUMENTS", "BLOCKS"),
        help="read on in this many documents with the best scores, this many further blocks of each; its own when left out",
    )
    parser.add_argument("--json", action="store_true", help="print JSON in place of tables")
    return run(_calibrate, parser, arguments)


def _calibrate(options: argparse.Namespace) -> None:
    from keyblock.runtime.session import ScoreError, SessionError
    from training.data.collection import Collection
    from training.evaluate.calibration.calibrate import Plan, calibrate, calibration_tables
    from training.evaluate.calibration.systems import Calibrated, CalibratedBundle, CalibratedRun

    if (options.bundle is None) != (options.out is None):
        raise ValueError("--bundle and --out belong together: the bundle stays as it is, and the calibrated copy goes to --out")
    quiet_transformers()
    collections = [Collection(path) for path in options.collection]
    system: Calibrated = CalibratedBundle(options.bundle, options.out) if options.bundle else CalibratedRun(options.run)
    plan = Plan(
        budgets=options.budgets,
        passages=options.passages,
        default=options.default,
        queries=options.queries,
        depth=options.depth,
        least=options.least,
        first_stage=options.first_stage,
        second_look=options.second_look and tuple(options.second_look),
    )
    try:
        fusion, quality = calibrate(system, collections, plan)
    except (SessionError, ScoreError) as error:
        raise ValueError(str(error)) from None
    print(json.dumps({"fusion": fusion.model_dump(), **quality}, indent=2) if options.json else calibration_tables(fusion, quality))
