"""keyblock-evaluate."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from keyblock.runtime.providers import Provider
from training.commands.command import as_yaml, count, make_parser, quiet_transformers, run
from training.evaluate.significance import CORRECTIONS


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure a system."""
    parser = make_parser("keyblock-evaluate", "Measure a system on a split: table, per-query file, TREC run, significance.")
    _add_system(parser)
    parser.add_argument("--collection", type=Path, required=True, help="a collection directory")
    parser.add_argument("--split", default="dev", help="the queries: a file in splits/ without .txt")
    parser.add_argument("--candidates", type=Path, help="a TREC run to re-rank; the collection's BM25 run when left out")
    parser.add_argument("--queries", type=count, help="a fixed sample of so many queries; all when left out")
    parser.add_argument("--depth", type=count, default=100, help="candidates a query")
    parser.add_argument(
        "--measures", nargs="+", default=["RR@10", "nDCG@10"], help="any that ir_measures knows; or the sets default or reported"
    )
    parser.add_argument(
        "--against",
        type=Path,
        action="append",
        default=[],
        help="another system: a per_query.tsv, a TREC run, or an --out directory",
    )
    parser.add_argument("--correction", choices=list(CORRECTIONS), default="holm", help="of the p-values of one measure")
    parser.add_argument("--out", type=Path, help="directory for run.trec.gz, per_query.tsv and summary.json")
    parser.add_argument("--json", action="store_true", help="print JSON in place of a table: the figures, and each system's means")
    return run(_evaluate, parser, arguments)


def _add_system(parser: argparse.ArgumentParser) -> None:
    """The arguments that say what is measured."""
    system = parser.add_mutually_exclusive_group(required=True)
    system.add_argument(
        "--run",
        type=Path,
        action="append",
        help="a run directory of keyblock-train; repeated, or a directory of runs: seeds of one system",
    )
    system.add_argument(
        "--bundle",
        type=Path,
        action="append",
        help="a bundle (ONNX Runtime); repeated: several systems, the first against the others",
    )
    system.add_argument("--url", help="a running service, e.g. http://127.0.0.1:8000")
    system.add_argument(
        "--ranked", type=Path, action="append", help="a TREC run made before; repeated: the test folds of one system"
    )
    parser.add_argument("--name", help="what to call the system")
    parser.add_argument("--budget", type=count, help="tokens a document (--run and --bundle); the pipeline's own when left out")
    parser.add_argument(
        "--pipeline",
        type=as_yaml,
        metavar="YAML",
        help="change parts of a --bundle's pipeline: '{segmenter: whole_sentences, packing: {long_query: {tokens: 48}}}'",
    )
    parser.add_argument("--unfused", action="store_true", help="the model's logit without the evidence (--run and --bundle)")
    parser.add_argument("--provider", type=Provider, default=Provider.AUTO, choices=list(Provider), help="for --bundle")
    parser.add_argument("--workers", type=count, default=1, help="requests under way at once (--url)")
    parser.add_argument("--deadline-ms", type=float, help="give each request so much time (--url)")


def _evaluate(options: argparse.Namespace) -> None:
    from training.commands.measuring import measure

    quiet_transformers()
    measure(options)
