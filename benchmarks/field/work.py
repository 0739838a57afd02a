"""One piece of work in its own process: train a system, or measure it and write a record."""

import argparse
from pathlib import Path

from benchmarks.field.plan import CHANCE, FIRST_STAGE, RECIPES, START, Setting, Stage, System, run_of
from benchmarks.systems import HeadRanker, chance, cost
from training.collections.collection import Collection
from training.evaluation.evaluate import Evaluation, evaluate, evaluate_run, sample
from training.evaluation.measures import REPORTED
from training.evaluation.ranking import run_ranker
from training.evaluation.records import record_evaluation, record_path, write_record
from training.learning.train import train
from training.recipe import load_recipe

FINISHED = "finished"


def records_of(options: argparse.Namespace, seed: int) -> Path:
    """The directory of a seed's records."""
    return Path(options.records) / f"seed-{seed}"


def train_recipe(recipe: str, collection: str, run: Path, settings: list[str], options: argparse.Namespace) -> None:
    """Train a recipe of the field, or continue its training, unless it is finished."""
    if (run / FINISHED).exists():
        return
    loaded = load_recipe(RECIPES / f"{recipe}.yaml", [*settings, *options.set])
    train(loaded, [Collection(options.data / collection)], run, cache=options.cache)
    (run / FINISHED).touch()


def train_start(options: argparse.Namespace) -> None:
    """Train the vanilla ranker that every system starts from."""
    train_recipe(START, "squad-articles", options.runs / START, [], options)


def train_system(system: System, stage: Stage, seed: int, options: argparse.Namespace) -> None:
    """Train a system in a stage. If it has a helper, train that first."""
    run = run_of(options.runs, stage.name, system.recipe, seed)
    start = None if system.words and stage.after is None else _start(system.recipe, stage, seed, options)
    longer = [] if stage.steps is None else [f"steps={stage.steps}"]
    settings = [f"seed={seed}", *longer, *([f"init={start}"] if start else [])]
    if system.helper:
        helper = run_of(options.runs, stage.name, system.helper, seed)
        teacher = f"distillation.teacher={options.runs / START}"
        before = [f"init={run_of(options.runs, stage.after, system.helper, seed)}"] if stage.after else []
        train_recipe(system.helper, stage.collection, helper, [f"seed={seed}", teacher, *before], options)
        settings.append(f"selector_run={helper}")
    train_recipe(system.recipe, stage.collection, run, settings, options)


def _start(recipe: str, stage: Stage, seed: int, options: argparse.Namespace) -> Path:
    runs = Path(options.runs)
    return runs / START if stage.after is None else run_of(runs, stage.after, recipe, seed)


def measure(system: System, setting: Setting, seed: int, options: argparse.Namespace) -> None:
    """Measure a system in a setting, and write its record."""
    collection = Collection(options.data / setting.collection)
    queries, candidates = sample(collection.split("test"), options.queries), collection.run("test")
    run = run_of(options.runs, setting.stage, system.recipe, seed)
    ranker = HeadRanker(system.recipe, run_ranker(run, collection), options.depth)
    evaluation = evaluate(ranker, collection, queries, candidates, measures=REPORTED)
    steps, seconds = cost(run)
    details = {"depth": options.depth, "title": system.title}
    record = record_evaluation(evaluation, setting.label, "test", steps=steps, training_seconds=seconds, details=details)
    write_record(record.model_copy(update={"ms_per_document": None}), records_of(options, seed))


def write_baselines(setting: Setting, options: argparse.Namespace) -> None:
    """Write the records of the first stage's order, and of its first candidates in random order."""
    collection, directory = Collection(options.data / setting.collection), records_of(options, 0)
    queries, candidates = sample(collection.split("test"), options.queries), collection.run("test")
    given = {query: candidates[query] for query in queries if query in candidates}
    if not record_path(directory, setting.label, FIRST_STAGE).exists():
        found = evaluate_run(FIRST_STAGE, given, collection, queries, REPORTED)
        write_record(record_evaluation(found, setting.label, "test"), directory)
    if not record_path(directory, setting.label, CHANCE).exists():
        found = Evaluation(CHANCE, {}, chance(given, collection.qrels, queries, options.depth))
        write_record(record_evaluation(found, setting.label, "test"), directory)
