"""keyblock-train, keyblock-calibrate, keyblock-evaluate, keyblock-candidates, keyblock-folds and keyblock-draw."""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import httpx
import transformers
import yaml
from ir_measures import Measure
from pydantic import ValidationError

from keyblock.bundle import load_bundle
from keyblock.pipeline import PackingConfig
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider, ProviderError
from keyblock.runtime.session import ScoreError, SessionError
from training.collections.collection import Collection, distinct_names
from training.collections.first_stage import complete_run
from training.collections.fold_directories import judged_queries, write_folds
from training.collections.folds import make_folds, read_folds
from training.collections.lines import numbered_lines
from training.collections.runs import join_runs, read_run, write_run
from training.collections.types import FileError, Run
from training.commands.dry_run import dry_run
from training.evaluation.calibration import (
    DevScores,
    calibration_error,
    fit_fusion,
    quality_table,
    read_scores,
    reliability,
    score_dev,
    write_scores,
)
from training.evaluation.curves import read_log
from training.evaluation.evaluate import (
    Evaluation,
    average_seeds,
    baselines,
    evaluate,
    evaluate_run,
    read_system,
    sample,
    summary,
    system_name,
    write_evaluation,
)
from training.evaluation.measures import MEASURE_SETS, parse_measures
from training.evaluation.pictures import Measured, draw_block_places, draw_learning_curves, draw_quality_latency
from training.evaluation.positions import block_places
from training.evaluation.ranking import CHOOSER, HttpRanker, LocalRanker, Ranker, bundle_ranker, load_run_pipeline, run_ranker
from training.evaluation.seeds import seed_runs
from training.evaluation.significance import CORRECTIONS
from training.evaluation.tables import table
from training.examples.prepared_cache import default_directory
from training.learning.best import train_best
from training.learning.loop import TrainingError
from training.learning.train import train, write_json
from training.models.checkpoints import chosen
from training.recipe import RecipeError, load_recipe, problems

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
    parser.add_argument(
        "recipe", type=Path, nargs="+", help="YAML; see training/recipes; of several each goes over those before it"
    )
    parser.add_argument(
        "--collection",
        type=Path,
        action="append",
        help="a directory, a YAML file or ir_datasets:NAME; may be repeated; the recipe's own when left out",
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be done, without training or downloading")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key of the recipe")
    parser.add_argument("--out", type=Path, help="the run directory")
    parser.add_argument("--tensorboard", action="store_true", help="write RUN/tensorboard too")
    parser.add_argument(
        "--cache", type=Path, default=default_directory(), help="where prepared documents are kept for other runs (%(default)s)"
    )

    def run(options: argparse.Namespace) -> None:
        recipe = load_recipe(options.recipe, options.set)
        collections = [Collection(path) for path in options.collection or map(Path, recipe.collections)]
        if not collections:
            raise RecipeError(f"{options.recipe[0]}: names no collections of its own; give --collection")
        if options.dry_run:
            print(*dry_run(recipe, collections), sep="\n")
            return
        if not options.out:
            parser.error("--out is needed: the run directory")
        procedure = train_best if recipe.best else train
        procedure(recipe, collections, options.out, options.tensorboard, options.cache)

    return _main(run, parser, arguments)


def calibrate_main(arguments: Sequence[str] | None = None) -> int:
    """keyblock-calibrate."""
    parser = _parser("keyblock-calibrate", "Learn a run's fusion on dev; measure it at several budgets; write both into the run.")
    parser.add_argument("--run", type=Path, required=True, help="a run directory of keyblock-train")
    parser.add_argument("--collection", type=Path, action="append", required=True, help="a collection directory; may be repeated")
    parser.add_argument(
        "--budgets", type=_count, nargs="+", help="budgets to measure: the range written is theirs; the run's own when left out"
    )
    parser.add_argument("--default", type=_count, help="the budget served by default; the first of --budgets when left out")
    parser.add_argument("--queries", type=_count, default=200, help="dev queries a collection")
    parser.add_argument("--depth", type=_count, default=100, help="candidates a query")
    return _main(_calibrate, parser, arguments)


def _calibrate(options: argparse.Namespace) -> None:
    config = load_run_pipeline(options.run).config
    options.budgets = options.budgets or [config.packing.budget]
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
    weights = [path for directory in (chosen(run), run / CHOOSER) for path in sorted(directory.glob("*.safetensors"))]
    for path in (*weights, run / "frequencies.tsv"):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def evaluate_main(arguments: Sequence[str] | None = None) -> int:
    """keyblock-evaluate."""
    parser = _parser("keyblock-evaluate", "Measure a system on a split: table, per-query file, TREC run, significance.")
    system = parser.add_mutually_exclusive_group(required=True)
    system.add_argument(
        "--run",
        type=Path,
        action="append",
        help="a run directory of keyblock-train; repeated, or a directory of runs: seeds of one system",
    )
    system.add_argument("--bundle", type=Path, help="a bundle (ONNX Runtime)")
    system.add_argument("--url", help="a running service, e.g. http://127.0.0.1:8000")
    system.add_argument(
        "--ranked", type=Path, action="append", help="a TREC run made before; repeated: the test folds of one system"
    )
    parser.add_argument("--name", help="what to call the system")
    parser.add_argument("--collection", type=Path, required=True, help="a collection directory")
    parser.add_argument("--split", default="dev", help="the queries: a file in splits/ without .txt")
    parser.add_argument("--candidates", type=Path, help="a TREC run to re-rank; the collection's BM25 run when left out")
    parser.add_argument("--queries", type=_count, help="a fixed sample of so many queries; all when left out")
    parser.add_argument("--depth", type=_count, default=100, help="candidates a query")
    parser.add_argument("--budget", type=_count, help="tokens a document (--run and --bundle); the pipeline's own when left out")
    parser.add_argument(
        "--selector",
        type=yaml.safe_load,
        metavar="YAML",
        help="feed a --run's model the blocks of this selector, unfused: first, last, '{name: learned, keep: 8}' ...",
    )
    parser.add_argument("--provider", type=Provider, default=Provider.AUTO, choices=list(Provider), help="for --bundle")
    parser.add_argument("--workers", type=_count, default=1, help="requests under way at once (--url)")
    parser.add_argument("--deadline-ms", type=float, help="give each request so much time (--url)")
    parser.add_argument(
        "--measures", nargs="+", default=["RR@10", "nDCG@10"], help=f"any that ir_measures knows; or {' or '.join(MEASURE_SETS)}"
    )
    parser.add_argument(
        "--against",
        type=Path,
        action="append",
        default=[],
        help="another system: a per_query.tsv, a TREC run, or an --out directory",
    )
    parser.add_argument("--correction", choices=list(CORRECTIONS), default="holm", help="of the p-values of one measure")
    parser.add_argument("--out", type=Path, help="directory for run.trec.gz, per_query.tsv, summary.json and blocks.png")
    return _main(_evaluate, parser, arguments)


def _evaluate(options: argparse.Namespace) -> None:
    collection = Collection(options.collection)
    queries = sample(collection.split(options.split), options.queries)
    candidates = _candidates(options, collection)
    measures = parse_measures(options.measures)
    given = {path: read_system(path, collection, queries, measures) for path in options.against}
    seeds = list(_evaluations(options, collection, queries, candidates, measures))
    evaluation = seeds[0] if len(seeds) == 1 else average_seeds(f"{options.run[0].resolve().name}, {len(seeds)} seeds", seeds)
    evaluation.name = options.name or evaluation.name
    others = baselines(collection, queries, candidates, measures)
    for path, values in given.items():
        name = system_name(path)
        others[str(path) if name in {evaluation.name, *others} else name] = values
    figures = summary(evaluation, collection, options.split)
    print(table({evaluation.name: evaluation.values, **others}, evaluation.name, options.correction))
    print(json.dumps(figures))
    if options.out:
        _write(evaluation, seeds, collection, options.out)
        write_json(options.out / "summary.json", figures)


def _evaluations(
    options: argparse.Namespace, collection: Collection, queries: Sequence[str], candidates: Run, measures: Sequence[Measure]
) -> Iterator[Evaluation]:
    """The system's evaluation, or that of each of its seeds."""
    if options.ranked:
        yield evaluate_run(system_name(options.ranked[0]), join_runs(options.ranked), collection, queries, measures)
        return
    for ranker in _rankers(options, collection):
        yield evaluate(ranker, collection, queries, candidates, workers=options.workers, measures=measures)


def _write(evaluation: Evaluation, seeds: Sequence[Evaluation], collection: Collection, out: Path) -> None:
    """The evaluation's files; those of each seed in a directory of its own."""
    write_evaluation(evaluation, out)
    for number, seed in enumerate(seeds, 1):
        inner = out if len(seeds) == 1 else out / f"seed-{number}"
        write_evaluation(seed, inner)
        if seed.blocks:
            lengths = {d: len(collection.document(d).text) for documents in seed.blocks.values() for d in documents}
            draw_block_places(block_places(seed.blocks, lengths, collection.qrels)).savefig(inner / "blocks.png", dpi=120)


def _candidates(options: argparse.Namespace, collection: Collection) -> Run:
    run = read_run(options.candidates) if options.candidates else collection.run(options.split)
    return {query: dict(list(scores.items())[: options.depth]) for query, scores in run.items()}


def _rankers(options: argparse.Namespace, collection: Collection) -> Iterator[Ranker]:
    if options.run:
        for run in (run for path in options.run for run in seed_runs(path)):
            yield run_ranker(run, collection, options.budget, selector=options.selector)
    elif options.bundle:
        bundle = load_bundle(options.bundle)
        yield bundle_ranker(bundle, GraphModel.open(bundle, options.provider), collection, options.budget)
    else:
        deadline = {} if options.deadline_ms is None else {"deadline_ms": options.deadline_ms}
        yield HttpRanker("http", collection, httpx.Client(base_url=options.url, timeout=600), deadline)


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


def folds_main(arguments: Sequence[str] | None = None) -> int:
    """keyblock-folds."""
    parser = _parser("keyblock-folds", "Make the collections of a k-fold cross-validation: a train, dev and test split in each.")
    parser.add_argument("--collection", type=Path, required=True, help="a collection directory")
    parser.add_argument("--folds", type=_count, default=5, help="how many; one tests, the next validates, the others train")
    parser.add_argument("--seed", type=int, default=0, help="decides which query is in which fold")
    parser.add_argument("--queries", type=Path, help="a file of query ids; every judged query when left out")
    parser.add_argument(
        "--given", type=Path, nargs="+", help="folds of others: a file of query ids each, or one JSON list of lists"
    )
    parser.add_argument("--out", type=Path, required=True, help="directory for the collections NAME-fold-1 ... and NAME-joined")
    return _main(_folds, parser, arguments)


def _folds(options: argparse.Namespace) -> None:
    collection = Collection(options.collection)
    if options.given:
        folds = read_folds(options.given)
    else:
        listed = [line.strip() for _, line in numbered_lines(options.queries)] if options.queries else judged_queries(collection)
        folds = make_folds(listed, options.folds, options.seed)
    for path in write_folds(collection, folds, options.out):
        print(path)


def draw_main(arguments: Sequence[str] | None = None) -> int:
    """keyblock-draw."""
    parser = _parser(
        "keyblock-draw", "Draw learning curves of runs, or quality against latency of what keyblock-evaluate measured."
    )
    parser.add_argument("picture", choices=["curves", "latency"])
    parser.add_argument(
        "directories", type=Path, nargs="+", help="runs (curves), or --out directories of keyblock-evaluate (latency)"
    )
    parser.add_argument("--measure", default="RR@10", help="one that is in the log (curves) or in summary.json (latency)")
    parser.add_argument("--out", type=Path, required=True, help="the picture; .png, .svg or .pdf")

    def run(options: argparse.Namespace) -> None:
        if options.picture == "curves":
            names = [path.resolve().name for path in options.directories]
            labels = names if len(set(names)) == len(names) else map(str, options.directories)
            logs = {label: read_log(path) for label, path in zip(labels, options.directories, strict=True)}
            figure = draw_learning_curves(logs, options.measure)
        else:
            figure = draw_quality_latency([_measured(path, options.measure) for path in options.directories], options.measure)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(options.out, dpi=120)

    return _main(run, parser, arguments)


def _measured(directory: Path, measure: str) -> Measured:
    path = directory / "summary.json"
    try:
        figures = json.loads(path.read_text(encoding="utf-8"))
        return Measured(figures["system"], float(figures["ms_per_document"]), float(figures["measures"][measure]))
    except (ValueError, KeyError, TypeError) as error:
        raise FileError(
            f"{path}: has no {measure} or no latency of a system ({error}); measure again with keyblock-evaluate"
        ) from None
