"""keyblock-export."""

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path

from export.options import Average, Options, add_bundle_arguments
from keyblock.bundle import Bundle
from keyblock.runtime.providers import Provider
from training.commands.command import count, make_parser, quiet_transformers, run
from training.data.collection import Collection


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = make_parser("keyblock-export", "Write a training run as a bundle, and verify it.")
    made.add_argument(
        "run", type=Path, help="a run directory of keyblock-train; or a bundle of one graph, to write it with variants"
    )
    add_bundle_arguments(made, Options(), "; replaces a bundle's variants. A run keeps those of the bundle that it began from")
    made.add_argument("--no-variants", action="store_true", help="write none of the variants that the run would keep")
    made.add_argument("--collection", type=Path, action="append", default=[], help="check the ranking on its dev split; repeatable")
    made.add_argument("--queries", type=count, default=200, help="dev queries a collection")
    made.add_argument("--depth", type=count, default=100, help="candidates a query")
    made.add_argument(
        "--name",
        default="",
        help="the model's name; when left out, its bundle's, or its recipe's behind that of the bundle it began from",
    )
    made.add_argument(
        "--average",
        nargs=2,
        metavar=("MODEL", "SHARE"),
        help="average the run's weights with those of this run or bundle; SHARE, above 0 and below 1, is the run's. "
        "Calibrate the bundle afterwards",
    )
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Export a run."""
    return run(_export, parser(), arguments, RuntimeError)  # ExportError, SessionError, and PyTorch's own


def _export(given: argparse.Namespace) -> None:
    from export.exporter import export_run  # imports PyTorch, which takes seconds
    from export.trained import variants_begun_with

    quiet_transformers()
    options = Options(
        precision=given.precision,
        provider=given.provider,
        variants=sorted(set(given.variant or ([] if given.no_variants else variants_begun_with(given.run)))),
        collections=[Collection(path) for path in given.collection],
        queries=given.queries,
        depth=given.depth,
        name=given.name,
        average=_average(*given.average) if given.average else None,
        overwrite=given.overwrite,
    )
    print(summary(export_run(given.run, given.out, options), given.provider))


def _average(model: str, share: str) -> Average:
    try:
        if 0 < (number := float(share)) < 1:
            return Average(Path(model), number)
    except ValueError:
        pass
    raise ValueError(f"--average {model} {share}: {share} is no share of the run; give a number above 0 and below 1")


def summary(bundle: Bundle, provider: Provider) -> str:
    """The bundle's path and size, its measurements, and how long its sessions take to load."""
    from keyblock.runtime.model import GraphModel

    started = time.perf_counter()
    choice = GraphModel.open(bundle, provider).session.choice
    seconds = time.perf_counter() - started
    megabytes = sum(entry.bytes for entry in bundle.manifest.files.values()) / 1e6
    head = f"{bundle.path}: {megabytes:.1f} MB, fused {bundle.graph.fused}, loads in {seconds:.1f} s ({choice.why})"
    measured = bundle.manifest.quality["export"] | {name: variant.quality for name, variant in bundle.manifest.variants.items()}
    return f"{head}\n{json.dumps(measured, indent=2)}"
