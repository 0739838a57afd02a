"""keyblock-train, keyblock-calibrate, keyblock-evaluate and keyblock-candidates."""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import transformers
from pydantic import ValidationError

from keyblock.bundle import load_bundle
from keyblock.pipeline import PackingConfig
from keyblock.runtime.providers import Provider, ProviderError
from keyblock.runtime.session import ScoreError, Session, SessionError
from training.calibration import (
    DevScores,
    calibration_error,
    fit_fusion,
    quality_table,
    read_scores,
    reliability,
    score_dev,
    write_scores,
)
from training.checkpoints import latest
from training.collection import Collection, distinct_names
from training.evaluation import baselines, evaluate, read_system, sample, summary, system_name, table, write_evaluation
from training.first_stage import complete_run
from training.loop import TrainingError
from training.measures import parse_measures, per_query
from training.model import HEAD_FILE
from training.ranking import HttpRanker, LocalRanker, Ranker, bundle_ranker, load_run_pipeline, run_ranker
from training.recipe import load_recipe, problems
from training.runs import Run, read_run, write_run
from training.train import train, write_json

KNOWN_ERRORS = (ValueError, OSError, TrainingError, ProviderError, SessionError, ScoreError, httpx.InvalidURL)


def _main(run: Callable[[argparse.Namespace], None], parser: argparse.ArgumentParser, arguments: Sequence[str] | None) -> int:
    """Run a command; what a person can mend ends in one line and exit code 2."""
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    try:
        run(parser.parse_args(arguments))
    except KNOWN_ERRORS as error:
        print(f"{parser.prog}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        more = "; the same command goes on from the last checkpoint" if parser.prog == "keyblock-train" else ""
        print(f"{parser.prog}: stopped{more}", file=sys.stderr)
        return 130
    return 0


def _parser(prog: str, description: str) -> argparse.ArgumentParser:
    return argparse.ArgumentParser(prog, description=description)


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def train_main(arguments: Sequence[str] | None = None) -> int:
    """keyblock-train."""
    parser = _parser("keyblock-train", "Train a ranker; the same command goes on where a stopped run left off.")
    parser.add_argument("recipe", type=Path, help="YAML; see training/recipes")
    parser.add_argument("--collection", type=Path, action="append", required=True, help="a collection directory; may be repeated")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key of the recipe")
    parser.add_argument("--out", type=Path, required=True, help="the run directory")

    def run(options: argparse.Namespace) -> None:
        train(load_recipe(options.recipe, options.set), [Collection(path) for path in options.collection], options.out)

    return _main(run, parser, arguments)


def calibrate_main(arguments: Sequence[str] | None = None) -> int:
    """keyblock-calibrate."""
    parser = _parser("keyblock-calibrate", "Learn a run's fusion on dev; measure it at several budgets; write both into the run.")
    parser.add_argument("--run", type=Path, required=True, help="a run directory of keyblock-train")
    parser.add_argument("--collection", type=Path, action="append", required=True, help="a collection directory; may be repeated")
    parser.add_argument("--budgets", type=_count, nargs="+", default=[128], help="budgets to measure; the range written is theirs")
    parser.add_argument("--default", type=_count, help="the budget served by default; the first of --budgets when left out")
    parser.add_argument("--queries", type=_count, default=200, help="dev queries a collection")
    parser.add_argument("--depth", type=_count, default=100, help="candidates a query")
    return _main(_calibrate, parser, arguments)


def _calibrate(options: argparse.Namespace) -> None:
    config = load_run_pipeline(options.run).config
    packing = _served(config.packing, options)
    collections = [Collection(path) for path in options.collection]
    distinct_names(collections)
    rankers = [run_ranker(options.run, collection, packing.budget_range[1]) for collection in collections]
    kept = options.run / "dev-scores" / _fingerprint(options.run)
    scored = {budget: [_score_dev(ranker, options, budget, kept) for ranker in rankers] for budget in options.budgets}
    default = packing.budget
    fusion = fit_fusion(scored[default])
    config = config.model_copy(update={"fusion": fusion, "packing": packing})
    quality = {
        "dev": quality_table(scored, fusion),
        "calibration": {
            "budget": default,
            "fitted_on": "the dev queries measured here",
            "expected_error": calibration_error(scored[default], fusion),
            "reliability": {s.collection.name: reliability(s, fusion) for s in scored[default]},
        },
    }
    write_json(options.run / "pipeline.json", config.model_dump(mode="json"))
    write_json(options.run / "quality.json", quality)
    print(json.dumps({"fusion": fusion.model_dump(), **quality}, indent=2))


def _served(packing: PackingConfig, options: argparse.Namespace) -> PackingConfig:
    """The packing with the budgets that are measured. Raises ValueError before any of that work."""
    default = options.default or options.budgets[0]
    if default not in options.budgets:
        raise ValueError(f"--default {default} is not among --budgets {' '.join(map(str, options.budgets))}")
    try:
        return PackingConfig.model_validate(
            packing.model_dump() | {"budget": default, "budget_range": (min(options.budgets), max(options.budgets))}
        )
    except ValidationError as error:
        raise ValueError(f"--budgets: {problems(error)}") from None


def _score_dev(ranker: LocalRanker, options: argparse.Namespace, budget: int, kept: Path) -> DevScores:
    """Scores of the run's model on dev: kept ones where there are, else computed and kept."""
    collection = ranker.preparation.collection
    path = kept / f"{collection.name}-{budget}-{options.queries}x{options.depth}.npz"
    if path.exists():
        return read_scores(path, collection)
    candidates = collection.run("dev")
    scores = score_dev(ranker, sample(sorted(candidates), options.queries), candidates, options.depth, budget)
    write_scores(scores, path)
    return scores


def _fingerprint(run: Path) -> str:
    """A name for what decides a run's scores: weights, frequencies, and the pipeline but for what calibration writes into it."""
    config = load_run_pipeline(run).config
    told = config.model_dump_json(exclude={"fusion": True, "packing": {"budget", "budget_range"}})
    digest = hashlib.sha256(told.encode())
    for path in (latest(run) / "model.safetensors", latest(run) / HEAD_FILE, run / "frequencies.tsv"):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def evaluate_main(arguments: Sequence[str] | None = None) -> int:
    """keyblock-evaluate."""
    parser = _parser("keyblock-evaluate", "Measure a system on a split: table, per-query file, TREC run, significance.")
    system = parser.add_mutually_exclusive_group(required=True)
    system.add_argument("--run", type=Path, help="a run directory of keyblock-train (PyTorch)")
    system.add_argument("--bundle", type=Path, help="a bundle (ONNX Runtime)")
    system.add_argument("--url", help="a running service, e.g. http://127.0.0.1:8000")
    parser.add_argument("--collection", type=Path, required=True, help="a collection directory")
    parser.add_argument("--split", default="dev", help="the queries: a file in splits/ without .txt")
    parser.add_argument("--candidates", type=Path, help="a TREC run to re-rank; the collection's BM25 run when left out")
    parser.add_argument("--queries", type=_count, help="a fixed sample of so many queries; all when left out")
    parser.add_argument("--depth", type=_count, default=100, help="candidates a query")
    parser.add_argument("--budget", type=_count, help="tokens a document (--run and --bundle); the pipeline's own when left out")
    parser.add_argument("--selector", help="feed a --run's model the blocks of this selector, unfused: first, last ...")
    parser.add_argument("--provider", type=Provider, default=Provider.AUTO, choices=list(Provider), help="for --bundle")
    parser.add_argument("--workers", type=_count, default=1, help="requests under way at once (--url)")
    parser.add_argument("--measures", nargs="+", default=["RR@10", "nDCG@10"], help="any that ir_measures knows")
    parser.add_argument("--against", type=Path, action="append", default=[], help="a per_query.tsv or TREC run to test against")
    parser.add_argument("--out", type=Path, help="directory for run.trec.gz, per_query.tsv and summary.json")
    return _main(_evaluate, parser, arguments)


def _evaluate(options: argparse.Namespace) -> None:
    collection = Collection(options.collection)
    queries = sample(collection.split(options.split), options.queries)
    candidates = _candidates(options, collection)
    measures = parse_measures(options.measures)
    given = {path: read_system(path, collection, queries, measures) for path in options.against}
    ranker = _ranker(options, collection)
    evaluation = evaluate(ranker, collection, queries, candidates, workers=options.workers)
    evaluation.values = per_query(collection.qrels, evaluation.run, queries, measures)
    others = baselines(collection, queries, candidates, measures)
    for path, values in given.items():
        name = system_name(path)
        others[str(path) if name in {evaluation.name, *others} else name] = values
    figures = summary(evaluation, collection, options.split)
    print(table({evaluation.name: evaluation.values, **others}, evaluation.name))
    print(json.dumps(figures))
    if options.out:
        write_evaluation(evaluation, options.out)
        write_json(options.out / "summary.json", figures)


def _candidates(options: argparse.Namespace, collection: Collection) -> Run:
    run = read_run(options.candidates) if options.candidates else collection.run(options.split)
    return {query: dict(list(scores.items())[: options.depth]) for query, scores in run.items()}


def _ranker(options: argparse.Namespace, collection: Collection) -> Ranker:
    if options.run:
        return run_ranker(options.run, collection, options.budget, selector=options.selector)
    if options.bundle:
        bundle = load_bundle(options.bundle)
        return bundle_ranker(bundle, Session(bundle.graph_path, options.provider), collection, options.budget)
    return HttpRanker("http", collection, httpx.Client(base_url=options.url, timeout=600))


def candidates_main(arguments: Sequence[str] | None = None) -> int:
    """keyblock-candidates."""
    parser = _parser("keyblock-candidates", "Write a first-stage BM25 run for every query of a split.")
    parser.add_argument("--collection", type=Path, required=True, help="a collection directory")
    parser.add_argument("--split", default="train", help="the queries; candidates come from the documents its own run names")
    parser.add_argument("--depth", type=_count, default=100, help="documents a query")
    parser.add_argument("--out", type=Path, required=True, help="a TREC run; gzipped when the name ends in .gz")

    def run(options: argparse.Namespace) -> None:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        write_run(complete_run(Collection(options.collection), options.split, options.depth), options.out, "bm25")

    return _main(run, parser, arguments)
