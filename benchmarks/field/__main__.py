"""Train and measure every system of the evaluation paper, and write its tables. A new run continues where the last one stopped.

    python -m benchmarks.field --data DATA [--only firstp maxp ...] [--seeds 0 1 2] [--parallel 2]
    python -m benchmarks.field --data DATA --latency    milliseconds a document, all systems in turns: when the machine is quiet
    python -m benchmarks.field --publish                puts the tables of all records, and the picture, into docs/field.md

DATA holds squad-articles, squad-far and qmsum. Each training or measurement is a separate process with its own memory. RUNS holds
the runs, RECORDS a record per system and setting. A system that fails does not stop the other systems.
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from os import environ
from pathlib import Path

import transformers

from benchmarks.field import tables, work
from benchmarks.field.plan import ROOT, SETTINGS, STAGES, START, SYSTEMS, Stage, System, run_of, stage, system
from benchmarks.performance.report import PageError, put
from benchmarks.systems import milliseconds
from training.collections.collection import Collection
from training.collections.json_files import write_json
from training.evaluation.evaluate import sample
from training.evaluation.pictures import Measured, draw_quality_latency
from training.evaluation.ranking import run_ranker
from training.evaluation.records import record_path
from training.examples.prepared_cache import default_directory

BEGIN = "<!-- the field: python -m benchmarks.field --publish writes from here -->"
LATENCY = "latency.json"
PICTURE = "images/field-quality-latency.png"
PICTURED = "squad-far, fine-tuned"


def main(options: argparse.Namespace) -> None:
    """Do the rest of the work and print the tables. If systems failed, exits with their names after all others are done."""
    for setting in SETTINGS:
        work.write_baselines(setting, options)
    if not (options.runs / START / work.FINISHED).exists() and (problem := process(["--train", START], options)):
        sys.exit(f"field: {problem}")
    chosen = [one for one in SYSTEMS if one.recipe in (options.only or [s.recipe for s in SYSTEMS])]
    jobs = [(one, seed) for seed in options.seeds for one in chosen]
    with ThreadPoolExecutor(options.parallel) as pool:
        problems = list(pool.map(lambda job: complete(*job, options), jobs))
    print(written(options))
    if failed := [f"{one.recipe} ({problem})" for (one, _), problem in zip(jobs, problems, strict=True) if problem]:
        sys.exit(f"field: {'; '.join(failed)}; mend it and start again: what was done is kept")


def complete(one: System, seed: int, options: argparse.Namespace) -> str | None:
    """Do the rest of a system's trainings and measurements. Returns the problem of the first that fails, or None."""
    for step in pieces(one, seed, options):
        if problem := process([*step, "--seed", str(seed)], options):
            return problem
    return None


def pieces(one: System, seed: int, options: argparse.Namespace) -> Iterator[list[str]]:
    """The arguments of each remaining piece of work of a system, in order."""
    for level in STAGES:
        if level.systems is not None and one.recipe not in level.systems:
            continue
        due = [
            setting
            for setting in SETTINGS
            if setting.stage == level.name and not record_path(work.records_of(options, seed), setting.label, one.recipe).exists()
        ]
        later = [setting for setting in SETTINGS if _comes_after(level, stage(setting.stage), one)]
        needed = due or any(not record_path(work.records_of(options, seed), s.label, one.recipe).exists() for s in later)
        if needed and not (run_of(options.runs, level.name, one.recipe, seed) / work.FINISHED).exists():
            yield ["--train", one.recipe, "--stage", level.name]
        for setting in due:
            yield ["--measure", one.recipe, "--setting", setting.label]


def _comes_after(level: Stage, other: Stage, one: System) -> bool:
    """Whether a system's training in stage `other` starts from its training in stage `level`."""
    return other.after == level.name and (other.systems is None or one.recipe in other.systems)


def process(arguments: Sequence[str], options: argparse.Namespace) -> str | None:
    """Run this program with other arguments; a log beside the runs gets its output. Returns the problem, or None."""
    paths = [f"--{name}={getattr(options, name)}" for name in ("data", "runs", "records", "cache", "queries", "depth")]
    command = [sys.executable, "-m", "benchmarks.field", *arguments, *paths, *(f"--set={one}" for one in options.set)]
    log, started = options.runs / f"{arguments[1]}.log", time.perf_counter()
    threads = str(max(1, options.threads // options.parallel))
    with log.open("a", encoding="utf-8") as out:
        code = subprocess.run(command, check=False, env=environ | {"OMP_NUM_THREADS": threads}, stdout=out, stderr=out).returncode
    print(f"{' '.join(arguments)}: {time.perf_counter() - started:.0f} s", flush=True)
    return f"{' '.join(arguments)} ended with {code}, see {log}" if code else None


def one_piece(options: argparse.Namespace) -> None:
    """Do one training or one measurement. Called in a child process."""
    if options.train == START:
        work.train_start(options)
    elif options.train:
        work.train_system(system(options.train), stage(options.stage), options.seed, options)
    else:
        setting = next(one for one in SETTINGS if one.label == options.setting)
        work.measure(system(options.measure), setting, options.seed, options)


def latency(options: argparse.Namespace) -> None:
    """Time every trained system on squad-far, in turns in one process. Writes milliseconds a document to RECORDS/latency.json."""
    collection = Collection(options.data / "squad-far")
    queries, candidates = sample(collection.split("test"), options.timed_queries), collection.run("test")
    names = [one.recipe for one in SYSTEMS if (run_of(options.runs, "far", one.recipe, 0) / work.FINISHED).exists()]
    rankers = [run_ranker(run_of(options.runs, "far", name, 0), collection) for name in names]
    medians = milliseconds(rankers, candidates, queries, options.depth)
    write_json(options.records / LATENCY, dict(zip(names, medians, strict=True)))


def written(options: argparse.Namespace) -> str:
    """All tables in Markdown."""
    records = tables.known_records(options.records)
    parts = [tables.field_table(records, latencies(options)), tables.gain_table(records), tables.findings_table(records)]
    return "\n\n".join([*parts, tables.p_table(records)])


def latencies(options: argparse.Namespace) -> dict[str, float]:
    """The milliseconds that `latency` wrote; empty if it has not run."""
    path = options.records / LATENCY
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def publish(options: argparse.Namespace) -> None:
    """Put the tables into the page and draw its picture. Raises PageError if the page's marks are missing."""
    put(options.page, written(options), BEGIN)
    taken = latencies(options)
    here = [r for r in tables.known_records(options.records) if r.collection == PICTURED and r.system in taken]
    if here:
        points = [Measured(tables.TITLES[r.system], taken[r.system], r.means[tables.MEASURES[0]]) for r in here]
        path = options.page.parent / PICTURE
        draw_quality_latency(points, f"{tables.MEASURES[0]}, {PICTURED}").savefig(path, dpi=100)


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("benchmarks.field", description="The evaluation paper's tables; resumable.")
    made.add_argument("--data", type=Path, help="directory of the collections; needed unless --publish is given")
    made.add_argument("--runs", type=Path, default=Path("runs/field"), help="directory of the trainings (%(default)s)")
    made.add_argument("--records", type=Path, default=ROOT / "docs" / "results" / "field", help="directory of the measurements")
    made.add_argument("--only", nargs="+", choices=[one.recipe for one in SYSTEMS], help="only these systems")
    made.add_argument("--seeds", nargs="+", type=int, default=[0], help="trainings of each system, by seed")
    made.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key of every recipe")
    made.add_argument("--queries", type=int, default=100, help="test queries of a collection, a fixed sample")
    made.add_argument("--depth", type=int, default=8, help="candidates that are re-ranked; the rest stay below them")
    made.add_argument("--parallel", type=int, default=1, metavar="N", help="systems to train and measure at once")
    made.add_argument("--threads", type=int, default=2, help="CPU threads of all processes together")
    made.add_argument("--cache", type=Path, default=default_directory(), help="directory of prepared documents (%(default)s)")
    made.add_argument("--latency", action="store_true", help="only time every trained system, in turns")
    made.add_argument("--timed-queries", type=int, default=10, help="timed test queries of squad-far")
    made.add_argument("--publish", action="store_true", help="only write the tables of all measurements into --page")
    made.add_argument("--page", type=Path, default=ROOT / "docs" / "field.md", help="a page with a marked place for the tables")
    for hidden in ("train", "measure", "stage", "setting"):
        made.add_argument(f"--{hidden}", help=argparse.SUPPRESS)
    made.add_argument("--seed", type=int, default=0, help=argparse.SUPPRESS)
    return made


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    command = parser()
    given = command.parse_args()
    if given.data is None and not given.publish:
        command.error("--data is needed: the directory of the collections")
    given.records.mkdir(parents=True, exist_ok=True)
    given.runs.mkdir(parents=True, exist_ok=True)
    if given.train or given.measure:
        one_piece(given)
    elif given.latency:
        latency(given)
    elif given.publish:
        try:
            publish(given)
        except PageError as error:
            sys.exit(f"field: {error}")
    else:
        main(given)
