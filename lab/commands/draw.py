"""keyblock-draw."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from training.commands.command import count, make_parser, run

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw a picture of runs or measurements."""
    parser = make_parser(
        "keyblock-draw",
        "Draw learning curves of runs, quality against latency of what keyblock-evaluate measured, or where a run selects blocks.",
    )
    parser.add_argument("picture", choices=["curves", "latency", "blocks"])
    parser.add_argument(
        "directories",
        type=Path,
        nargs="+",
        help="runs (curves), --out directories of keyblock-evaluate (latency), or a run (blocks)",
    )
    parser.add_argument("--measure", default="RR@10", help="one that is in the log (curves) or in summary.json (latency)")
    parser.add_argument("--collection", type=Path, help="whose dev candidates are read (blocks)")
    parser.add_argument("--queries", type=count, default=100, help="of them (blocks)")
    parser.add_argument("--out", type=Path, required=True, help="the picture; .png, .svg or .pdf")
    return run(_draw, parser, arguments)


def _draw(options: argparse.Namespace) -> None:
    from lab.pictures import Measured, draw_learning_curves, draw_quality_latency
    from training.learn.tracking import read_log

    if options.picture == "curves":
        names = [path.resolve().name for path in options.directories]
        labels = names if len(set(names)) == len(names) else map(str, options.directories)
        logs = {label: read_log(path) for label, path in zip(labels, options.directories, strict=True)}
        figure = draw_learning_curves(logs, options.measure)
    elif options.picture == "blocks":
        figure = _blocks(options)
    else:
        measured = [Measured(*_figures(path, options.measure)) for path in options.directories]
        figure = draw_quality_latency(measured, options.measure)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=120)


def _blocks(options: argparse.Namespace) -> "Figure":
    """The blocks that a run selects on dev, as KeyB's Figures 11 and 12. Raises ValueError without a collection."""
    from lab.pictures import draw_block_places
    from lab.positions import block_places
    from training.data.collection import Collection
    from training.data.first_stage import first_stage_run
    from training.evaluate.evaluate import evaluate, sample
    from training.evaluate.ranking import run_ranker

    if options.collection is None or len(options.directories) > 1:
        raise ValueError("blocks are those of one run on one --collection")
    collection = Collection(options.collection)
    queries = sample(collection.split("dev"), options.queries)
    ranker = run_ranker(options.directories[0], collection)
    blocks = evaluate(ranker, collection, queries, first_stage_run(collection, "dev")).blocks
    lengths = {d: len(collection.document(d).text) for documents in blocks.values() for d in documents}
    return draw_block_places(block_places(blocks, lengths, collection.qrels))


def _figures(directory: Path, measure: str) -> tuple[str, float, float]:
    """The system's name, its milliseconds a document, and its quality. Raises ValueError if one of them was not measured."""
    path = directory / "summary.json"
    try:
        figures = json.loads(path.read_text(encoding="utf-8"))
        return figures["system"], float(figures["ms_per_document"]), float(figures["measures"][measure])
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: has no {measure} or no latency of a system ({error}); measure again with keyblock-evaluate"
        ) from None
