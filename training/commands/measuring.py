"""The work of keyblock-evaluate, in a module of its own, so that --help does not wait for PyTorch."""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
from ir_measures import Measure

from keyblock.bundle import load_bundle
from keyblock.runtime.model import open_model
from keyblock.runtime.session import ScoreError, SessionError
from training.data.collection import Collection
from training.data.files import join_runs, read_run, write_json
from training.data.first_stage import first_stage_run
from training.data.types import Run
from training.evaluate.evaluate import (
    RUN_FILE,
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
from training.evaluate.measures import means, parse_measures, seed_runs
from training.evaluate.ranking import HttpRanker, Ranker, bundle_ranker, run_ranker
from training.evaluate.tables import table


def measure(options: argparse.Namespace) -> None:
    """Measure the system that the options name, print its table, and write its files where --out is given.

    Raises ValueError for --unfused without --run or --bundle, and for --pipeline without --bundle.
    """
    if options.unfused and not (options.run or options.bundle):
        raise ValueError("--unfused is of a --run or --bundle: a service and a TREC run have added the evidence already")
    if options.pipeline and not options.bundle:
        raise ValueError("--pipeline changes a --bundle's: a run has its own recipe, and a service its own bundle")
    collection = Collection(options.collection)
    queries = sample(collection.split(options.split), options.queries)
    candidates = _candidates(options, collection)
    measures = parse_measures(options.measures)
    against = {path: read_system(path, collection, queries, measures) for path in options.against}
    seeds = list(_evaluations(options, collection, queries, candidates, measures))
    beside: Sequence[Evaluation] = _distinct(seeds, options.bundle)[1:] if options.bundle else ()
    seeds = seeds[:1] if options.bundle else seeds
    evaluation = seeds[0] if len(seeds) == 1 else average_seeds(f"{options.run[0].resolve().name}, {len(seeds)} seeds", seeds)
    evaluation.name = options.name or evaluation.name
    others = {one.name: one.values for one in beside} | baselines(collection, queries, candidates, measures)
    for path, values in against.items():
        name = system_name(path)
        others[str(path) if name in {evaluation.name, *others} else name] = values
    figures, *of_others = (summary(one, collection, options.split) for one in (evaluation, *beside))
    systems = {evaluation.name: evaluation.values, **others}
    if options.json:
        means_of_all = {"systems": {name: means(values) for name, values in systems.items()}}
        print(json.dumps(figures | means_of_all | ({"beside": of_others} if beside else {})))
    else:
        print(table(systems, evaluation.name, options.correction), "", *_lines(figures), sep="\n")
        for other in of_others:
            print("", f"{other['system']}:", *_lines(other), sep="\n")
    if options.out:
        _write(evaluation, seeds, options.out)
        write_json(options.out / "summary.json", figures)
        for number, (one, of_one) in enumerate(zip(beside, of_others, strict=True), 2):
            write_evaluation(one, options.out / f"bundle-{number}")
            write_json(options.out / f"bundle-{number}" / "summary.json", of_one)


def _distinct(evaluations: Sequence[Evaluation], bundles: Sequence[Path]) -> Sequence[Evaluation]:
    """The bundles' evaluations, named by their paths where two bundles have one name."""
    names = [one.name for one in evaluations]
    for one, bundle in zip(evaluations, bundles, strict=True):
        one.name = one.name if names.count(one.name) == 1 else str(bundle)
    return evaluations


def _lines(figures: Mapping[str, Any]) -> Iterator[str]:
    """A line for each figure that was measured and is not in the table."""
    for name, value in figures.items():
        if value is not None and name not in ("system", "measures"):
            yield f"{name.replace('_', ' ')}: {round(value, 4) if isinstance(value, float) else value}"


def _candidates(options: argparse.Namespace, collection: Collection) -> Run:
    run = read_run(options.candidates) if options.candidates else first_stage_run(collection, options.split, options.depth)
    return {query: dict(list(scores.items())[: options.depth]) for query, scores in run.items()}


def _evaluations(
    options: argparse.Namespace, collection: Collection, queries: Sequence[str], candidates: Run, measures: Sequence[Measure]
) -> Iterator[Evaluation]:
    """The system's evaluation, or one for each of its seeds."""
    if options.ranked:
        yield evaluate_run(system_name(options.ranked[0]), join_runs(options.ranked), collection, queries, measures)
        return
    try:
        for ranker in _rankers(options, collection):
            yield evaluate(ranker, collection, queries, candidates, workers=options.workers, measures=measures)
    except (SessionError, ScoreError, httpx.InvalidURL) as error:
        raise ValueError(str(error)) from error


def _rankers(options: argparse.Namespace, collection: Collection) -> Iterator[Ranker]:
    if options.run:
        for run in (run for path in options.run for run in seed_runs(path)):
            ranker = run_ranker(run, collection, options.budget)
            yield ranker.unfused() if options.unfused else ranker
    elif options.bundle:
        for path in options.bundle:
            bundle = load_bundle(path)
            ranker = bundle_ranker(bundle, open_model(bundle, options.provider), collection, options.budget, options.pipeline)
            yield ranker.unfused() if options.unfused else ranker
    else:
        deadline = {} if options.deadline_ms is None else {"deadline_ms": options.deadline_ms}
        yield HttpRanker("http", collection, httpx.Client(base_url=options.url, timeout=600), deadline)


def _write(evaluation: Evaluation, seeds: Sequence[Evaluation], out: Path) -> None:
    """Write the evaluation's files; each of several seeds has a directory of its own.

    Runs of an earlier evaluation go first: `read_system` would read them in place of the seeds, or among them.
    """
    if len(seeds) > 1:
        for old in (out / RUN_FILE, *out.glob(f"seed-*/{RUN_FILE}"), *out.glob(f"bundle-*/{RUN_FILE}")):
            old.unlink(missing_ok=True)
    write_evaluation(evaluation, out)
    for number, seed in enumerate(seeds if len(seeds) > 1 else (), 1):
        write_evaluation(seed, out / f"seed-{number}")
