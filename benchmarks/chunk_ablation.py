"""Quality by the number of chunks that are read: one recipe trained and measured with one to six chunks, on dev.

    python -m benchmarks.chunk_ablation --collection DATA/squad-far --collection DATA/qmsum  trains what is missing
    python -m benchmarks.chunk_ablation --publish  writes the table into docs/positions.md

Table 8 of "Understanding Performance of Long-Document Ranking Models through Comprehensive Evaluation and Leaderboarding"
(appendix B.3): PARADE-Attn with the same number of chunks in training and measurement, and the gain over one chunk. The program
may be stopped and started again. Each model re-ranks BM25's first candidates of the same dev queries by its logit.
"""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import transformers

from benchmarks.performance.report import put
from benchmarks.systems import ROOT, HeadRanker, cost
from training.collections.collection import Collection
from training.commands.train import main as train_main
from training.evaluation.evaluate import evaluate, sample
from training.evaluation.measures import Values, means
from training.evaluation.ranking import run_ranker
from training.evaluation.records import Record, read_records, record_evaluation, write_record
from training.evaluation.seeds import mean_over_seeds
from training.evaluation.significance import corrected_tests, p_text
from training.evaluation.tables import markdown

RECIPE = ROOT / "training" / "recipes" / "small" / "chunks-attention.yaml"
MEASURES = ("RR@10", "nDCG@10")
MARK = "<!-- quality by number of chunks: python -m benchmarks.chunk_ablation --publish writes from here -->"


def main(options: argparse.Namespace) -> None:
    """Train and measure the missing models; print the table."""
    collections = [Collection(path) for path in options.collection]
    for chunks in options.chunks:
        for seed in range(options.seeds):
            if due := missing(chunks, seed, collections, options):
                run = train(chunks, seed, options)
                for collection in due:
                    measure(run, chunks, collection, options)
    print(table(read_records(options.records)))


def missing(chunks: int, seed: int, collections: Sequence[Collection], options: argparse.Namespace) -> list[Collection]:
    """The collections on which this model is not measured yet, with these steps, queries and depth."""
    details = details_of(chunks, options)
    found = {
        (record.collection, record.system)
        for record in read_records(options.records)
        if record.steps == options.steps and record.details == details
    }
    return [collection for collection in collections if (collection.name, run_name(chunks, seed)) not in found]


def details_of(chunks: int, options: argparse.Namespace) -> dict[str, int]:
    """The settings of a measurement, beside the training's."""
    return {"chunks": chunks, "depth": options.depth, "asked": options.queries}


def run_name(chunks: int, seed: int) -> str:
    """The name of a training, on disk and in the records."""
    return f"chunks-{chunks}-seed-{seed}"


def train(chunks: int, seed: int, options: argparse.Namespace) -> Path:
    """Train a model, or continue its training; a finished one stays as it is. Exits if training fails."""
    run: Path = options.runs / run_name(chunks, seed)
    changes = {"pipeline.aggregator.passages": chunks, "seed": seed, "steps": options.steps}
    settings = [f"--set={given}" for given in (*options.set, *(f"{key}={value}" for key, value in changes.items()))]
    collections = [f"--collection={path}" for path in options.collection]
    if code := train_main([str(options.recipe), *collections, *settings, f"--out={run}"]):
        sys.exit(f"chunk_ablation.py: training {run} ended with {code}; mend it and start again: what was done is kept")
    return run


def measure(run: Path, chunks: int, collection: Collection, options: argparse.Namespace) -> None:
    """Measure a model on the collection's dev queries."""
    queries, candidates = sample(collection.split("dev"), options.queries), collection.run("dev")
    ranker = HeadRanker(run.name, run_ranker(run, collection), options.depth)
    evaluation = evaluate(ranker, collection, queries, candidates)
    steps, seconds = cost(run)
    costs = {"steps": steps, "training_seconds": seconds, "details": details_of(chunks, options), "ms_per_document": None}
    write_record(record_evaluation(evaluation, collection.name, "dev", **costs), options.records)


def table(records: Sequence[Record]) -> str:
    """A row for each number of chunks: each measure's mean over the seeds, its gain over one chunk, and p (Holm over the rows)."""
    rows = [["collection", "chunks", "seeds", *(cell for m in MEASURES for cell in (m, "gain", "p")), "training, minutes"]]
    for collection in dict.fromkeys(record.collection for record in records):
        here = [record for record in records if record.collection == collection]
        grouped = {n: [r for r in here if r.details["chunks"] == n] for n in sorted({r.details["chunks"] for r in here})}
        values = {n: mean_over_seeds([record.by_query for record in seeds]) for n, seeds in grouped.items()}
        compared = _compared(values)
        for n, seeds in grouped.items():
            minutes = sum(record.training_seconds or 0 for record in seeds) / len(seeds) / 60
            rows.append([collection, str(n), str(len(seeds)), *compared[n], f"{minutes:.0f}"])
    return markdown(rows)


def _compared(values: dict[int, Values]) -> dict[int, list[str]]:
    """The cells of each number of chunks: mean, gain over the fewest chunks, p-value, of each measure."""
    fewest = min(values)
    cells: dict[int, list[str]] = {n: [] for n in values}
    for measure in MEASURES:
        reference = means(values[fewest])[measure]
        more_chunks = {str(n): by_measure[measure] for n, by_measure in values.items() if n != fewest}
        p_values = corrected_tests(more_chunks, values[fewest][measure], "holm")
        for n, by_measure in values.items():
            mean = means(by_measure)[measure]
            gain = f"{mean / reference - 1:+.1%}" if n != fewest and reference else ""
            cells[n] += [f"{mean:.3f}", gain, p_text(p_values[str(n)]) if str(n) in p_values else ""]
    return cells


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("benchmarks.chunk_ablation", description="Quality by the number of chunks that are read.")
    made.add_argument("--collection", type=Path, action="append", default=[], help="trained and measured on; repeated")
    made.add_argument("--recipe", type=Path, default=RECIPE, help="one whose pipeline.aggregator has `passages`")
    made.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key of the recipe")
    made.add_argument("--chunks", type=int, nargs="+", default=[1, 2, 3, 4, 5, 6], help="numbers of chunks")
    made.add_argument("--seeds", type=int, default=1, help="trainings of each; the paper's are 3")
    made.add_argument("--runs", type=Path, default=Path("runs"), help="where trainings go")
    made.add_argument("--records", type=Path, default=ROOT / "docs" / "results" / "chunks", help="where measurements go")
    made.add_argument("--steps", type=int, default=700, help="training steps of each model")
    made.add_argument("--queries", type=int, default=150, help="dev queries of a collection, a fixed sample")
    made.add_argument("--depth", type=int, default=10, help="candidates of a query that are re-ranked")
    made.add_argument("--publish", action="store_true", help="only write the table of what is measured into --page")
    made.add_argument("--page", type=Path, default=ROOT / "docs" / "positions.md", help="a page with a place for the table")
    return made


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    given = parser().parse_args()
    if given.publish:
        put(given.page, table(read_records(given.records)), MARK)
    else:
        main(given)
