"""Quality of token budgets on dev: one model trained with all three budgets against one model for each.

    python -m benchmarks.budgets --data DATA [--only mixed 128]    trains and measures what is missing; may be stopped
    python -m benchmarks.budgets --data DATA --publish             writes the table into docs/performance.md

Every model is trained by recipes/small/budgets.yaml, from the embedded model, with the same steps and draws; only the shares of the
budgets differ. Each re-ranks BM25's first candidates of the same dev queries by its logit alone.
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import transformers

from benchmarks.performance.report import put
from benchmarks.systems import ROOT, HeadRanker, cost
from training.collections.collection import Collection
from training.evaluation.evaluate import evaluate, evaluate_run, sample
from training.evaluation.ranking import run_ranker
from training.evaluation.records import Record, read_records, record_evaluation, write_record
from training.evaluation.significance import correct, p_text, paired_t_test
from training.evaluation.tables import markdown

RECIPE = ROOT / "training" / "recipes" / "small" / "budgets.yaml"
COLLECTIONS = ("squad-far", "squad-articles", "qmsum")
BUDGETS = (128, 256, 512)
MIXED, FIRST_STAGE = "mixed", "BM25"
MODELS = (MIXED, *map(str, BUDGETS))
MEASURES = ("RR@10", "nDCG@10")
MARK = "<!-- quality by budget: python -m benchmarks.budgets --publish writes from here -->"


def main(options: argparse.Namespace) -> None:
    """Train and measure the missing models; print the table."""
    for model in options.only:
        if due := list(missing(model, options)):
            train(model, options)
            for collection, budget in due:
                measure(model, collection, budget, options)
    print(table(read_records(options.records)))


def missing(model: str, options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """The collections and budgets on which a model is not measured yet, with these steps and depth."""
    measured = {(r.collection, r.system) for r in read_records(options.records) if _fits(r, options)}
    for collection in COLLECTIONS:
        for budget in BUDGETS if model == MIXED else (int(model),):
            if (cell(collection, budget), kind(model)) not in measured:
                yield collection, budget


def _fits(record: Record, options: argparse.Namespace) -> bool:
    return record.steps == options.steps and record.details.get("depth") == options.depth


def kind(model: str) -> str:
    """A model's name in the rows of one budget."""
    return model if model == MIXED else "its own"


def cell(collection: str, budget: int) -> str:
    """The name of a budget on a collection in the records."""
    return f"{collection}, {budget} tokens"


def train(model: str, options: argparse.Namespace) -> None:
    """Train a model, or continue its training, unless it is finished. Exits if it was trained for another number of steps."""
    run = options.runs / f"budget-{model}"
    if (run / "finished").exists():
        if (steps := cost(run)[0]) != options.steps:
            problem = f"{run} was trained for {steps} steps, not {options.steps}"
            sys.exit(f"budgets.py: {problem}: remove it, or name other --runs and --records")
        return
    shares = [] if model == MIXED else [f"--set=budgets={{{model}: 1.0}}"]
    collections = [f"--collection={options.data / name}" for name in COLLECTIONS]
    command = [sys.executable, "-m", "training.commands.train", str(RECIPE), *collections, *shares, f"--set=steps={options.steps}"]
    if code := subprocess.run([*command, f"--out={run}"], check=False).returncode:
        sys.exit(f"budgets.py: training {run} ended with {code}; mend it and start again: what was done is kept")
    (run / "finished").touch()


def measure(model: str, collection_name: str, budget: int, options: argparse.Namespace) -> None:
    """Measure a model on a collection's dev queries at a budget, and at the first budget also the first stage."""
    collection = Collection(options.data / collection_name)
    queries, candidates = sample(collection.split("dev"), options.queries), collection.run("dev")
    run = options.runs / f"budget-{model}"
    ranker = HeadRanker(kind(model), run_ranker(run, collection, budget), options.depth)
    evaluation = evaluate(ranker, collection, queries, candidates)
    place, details = cell(collection_name, budget), {"depth": options.depth}
    costs = {
        "steps": options.steps,
        "details": details,
        "ms_per_document": None,
    }  # it would count candidates that are not re-ranked
    write_record(record_evaluation(evaluation, place, "dev", **costs), options.records)
    if budget == BUDGETS[0]:  # the first stage is the same at each
        first_stage = evaluate_run(FIRST_STAGE, {q: candidates[q] for q in queries if q in candidates}, collection, queries)
        write_record(record_evaluation(first_stage, place, "dev"), options.records)


def table(records: Sequence[Record]) -> str:
    """A row for each budget and model: RR@10 and nDCG@10 of each collection, and p of the difference of both models' RR@10."""
    found = {(record.collection, record.system): record for record in records}
    p_values = tested(found)
    head = ["tokens", "model", *(f"{c}, {what}" for c in COLLECTIONS for what in (*MEASURES, "p"))]
    rows = [[f"{budget}", system, *_cells(found, p_values, budget, system)] for budget in BUDGETS for system in (MIXED, "its own")]
    return markdown([head, ["", FIRST_STAGE, *_cells(found, p_values, BUDGETS[0], FIRST_STAGE)], *rows])


def _cells(found: dict[tuple[str, str], Record], p_values: dict[str, float], budget: int, system: str) -> Iterator[str]:
    for collection in COLLECTIONS:
        place = cell(collection, budget)
        record = found.get((place, system))
        yield from (f"{record.means[m]:.3f}" if record else "" for m in MEASURES)
        yield p_text(p_values[place]) if system == "its own" and place in p_values else ""


def tested(found: dict[tuple[str, str], Record]) -> dict[str, float]:
    """The p-values of both models' RR@10 by collection and budget: paired t-tests, Holm-corrected over all."""
    places = [cell(c, b) for c in COLLECTIONS for b in BUDGETS]
    both = [place for place in places if _queries(found, place, MIXED) == _queries(found, place, "its own") != []]
    values = [[found[place, system].by_query["RR@10"] for system in (MIXED, "its own")] for place in both]
    return dict(zip(both, correct([paired_t_test(*pair) for pair in values], "holm"), strict=True))


def _queries(found: dict[tuple[str, str], Record], place: str, system: str) -> list[str]:
    return found[place, system].queries if (place, system) in found else []


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("benchmarks.budgets", description="Quality of token budgets, of one model and of one each.")
    made.add_argument("--data", type=Path, required=True, help="the directory of the collections")
    made.add_argument("--runs", type=Path, default=Path("runs"), help="where trainings go")
    made.add_argument("--records", type=Path, default=ROOT / "docs" / "results" / "budgets", help="where measurements go")
    made.add_argument("--only", nargs="+", choices=MODELS, default=list(MODELS), help="these models")
    made.add_argument("--steps", type=int, default=700, help="training steps of each model")
    made.add_argument("--queries", type=int, default=150, help="dev queries of a collection, a fixed sample")
    made.add_argument("--depth", type=int, default=10, help="candidates of a query that are re-ranked")
    made.add_argument("--publish", action="store_true", help="only write the table of what is measured into --page")
    made.add_argument("--page", type=Path, default=ROOT / "docs" / "performance.md", help="a page with a place for the table")
    return made


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    given = parser().parse_args()
    given.records.mkdir(parents=True, exist_ok=True)
    if given.publish:
        put(given.page, table(read_records(given.records)), MARK)
    else:
        main(given)
