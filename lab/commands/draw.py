"""keyblock-draw."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from training.commands.command import make_parser, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Draw a picture of runs or measurements."""
    parser = make_parser(
        "keyblock-draw",
        "Draw learning curves of runs, or quality against latency of what keyblock-evaluate measured.",
    )
    parser.add_argument("picture", choices=["curves", "latency"])
    parser.add_argument(
        "directories",
        type=Path,
        nargs="+",
        help="runs (curves), or --out directories of keyblock-evaluate (latency)",
    )
    parser.add_argument("--measure", default="RR@10", help="one that is in the log (curves) or in summary.json (latency)")
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
    else:
        measured = [Measured(*_figures(path, options.measure)) for path in options.directories]
        figure = draw_quality_latency(measured, options.measure)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(options.out, dpi=120)


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
