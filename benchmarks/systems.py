"""One table of every system in the papers: trains each recipe, measures it, and writes the table. It can be stopped and resumed.

    python -m benchmarks.systems --data DATA [--only keyb-bm25 cascade ...] [--parallel 8]

DATA holds the collections squad-far and qmsum. Finished work is not repeated: finished trainings are in RUNS, measurements in
RECORDS (a small file for each system and collection), possibly from another day. Each system is trained from the embedded model,
with the same draws and the same number of steps, except BeST, whose iterations start from the backbone, as in the paper. Each
training and each measurement is a process, so that memory is measured separately. `--parallel` runs several systems at once, which
pays on a GPU; then each writes its output into RUNS/SYSTEM.log. A system that fails does not stop the others.

The backbone's package is not needed if KEYBLOCK_BACKBONE names its directory.

    python -m benchmarks.systems --data DATA --latency   times every system in turns; run it when the machine is quiet
    python -m benchmarks.systems --data DATA --publish   writes the table of all records, and its picture, into docs/systems.md
    python -m benchmarks.systems --publish-gold RECORDS  writes only the table of gold passages, of the records in another directory
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import transformers

from benchmarks.performance.report import PageError, put
from training.collections.collection import Collection
from training.collections.json_files import write_json
from training.collections.types import FileError, Run
from training.evaluation.curves import read_log
from training.evaluation.evaluate import Evaluation, evaluate, evaluate_run, gold_ranks, sample
from training.evaluation.measures import REPORTED, Grades, Values, per_query
from training.evaluation.pictures import Measured, draw_quality_latency
from training.evaluation.ranking import LocalRanker, Ranker, Reranked, load_run_pipeline, run_ranker
from training.evaluation.records import Record, read_record, read_records, record_evaluation, record_path, write_record
from training.evaluation.seeds import mean_over_seeds
from training.evaluation.significance import correct
from training.evaluation.tables import Comparison, compare_pairs, comparisons_table, markdown, systems_table
from training.examples.preparation import Preparation
from training.examples.prepared_cache import default_directory
from training.learning.best import TABLE, judged_pairs, precision, train_best
from training.learning.train import train
from training.models.checkpoints import chosen
from training.models.devices import fastest_device
from training.models.families import load_ranker
from training.recipe import load_recipe

ROOT = Path(__file__).resolve().parent.parent
RECIPES = ROOT / "training" / "recipes" / "small"
FIRST_STAGE, CHANCE, REFERENCE = "BM25", "chance", "keyb-bm25"
SHUFFLES = 5  # of a candidate list, each turned round once: see `chance`
SEGMENTS, LATENCY = "segments.json", "latency.json"
GOLD_RANK = "gold_rank"  # of a record's details: by query, see `gold_ranks`
GOLD_MARK = "<!-- gold passages: python -m benchmarks.systems --publish-gold writes from here -->"
PAGE, PICTURE = ROOT / "docs" / "systems.md", "images/quality-latency-{}.png"
BEGIN = "<!-- the table of systems: python -m benchmarks.systems --publish writes from here -->"
DEPTH = {"squad-far": 10, "qmsum": 10}
MEASURES = ("RR@10", "nDCG@10", "nDCG@20")


@dataclass(frozen=True)
class System:
    """A row of the table.

    Attributes:
        recipe: its name in recipes/small.
        reads_all: whether it scores every block of a document; then a collection of long documents is measured on fewer queries.
    """

    recipe: str
    reads_all: bool = False


SYSTEMS = (
    System("keyb-bm25"),
    System("firstp"),
    System("keyb-random"),
    System("cascade"),
    System("parade5-bm25"),
    System("keyb-binb", reads_all=True),
    System("maxp", reads_all=True),
    System("best", reads_all=True),
    System("parade16"),
    System("parade5"),
    System("keyb-tfidf"),
    System("goldp", reads_all=True),
    System("lastp"),
    System("parade5-tfidf"),
    System("parade5-binb", reads_all=True),
    System("parade5-binb2", reads_all=True),
    System("parade5-max"),
    System("parade5-average"),
    System("parade5-attention"),
    System("parade5-cnn"),
    System("parade5-pretrained"),
    System("avgp"),
    System("sump"),
)
CLAIMS = (
    ("keyb-bm25", "keyb-random"),
    ("keyb-bm25", "firstp"),
    ("keyb-binb", "keyb-bm25"),
    ("cascade", "keyb-binb"),
    ("best", "firstp"),
    ("best", "maxp"),
    ("parade5-bm25", "parade16"),
    ("parade5-bm25", "parade5"),
)


@dataclass
class HeadRanker(Ranker):
    """Re-ranks the first candidates of a list; the rest keeps its order below."""

    name: str
    inner: Ranker
    depth: int

    def rerank(self, query_id: str, candidates: Sequence[str]) -> Reranked:
        """See Ranker."""
        head = self.inner.rerank(query_id, candidates[: self.depth])
        lowest = min(head.scores.values(), default=0.0)
        rest = {d: lowest - place for place, d in enumerate(candidates[self.depth :], 1)}
        return Reranked(head.scores | rest, head.blocks)


def main(options: argparse.Namespace) -> None:
    """Do the missing work and print the tables. At the end, exits with the names of the systems that failed, if any."""
    for collection in options.collections:
        write_baselines(Collection(options.data / collection), options)
    names = options.only or [system.recipe for system in SYSTEMS]
    systems = [system for system in SYSTEMS if system.recipe in names]
    with ThreadPoolExecutor(options.parallel) as pool:
        problems = list(pool.map(lambda system: complete(system, options), systems))
    for system, problem in zip(systems, problems, strict=True):
        if problem is None and segments_missing(system.recipe, options):
            keep_segments(system.recipe, options)
    print(tables(known_records(options), options))
    if failed := [f"{system.recipe} ({problem})" for system, problem in zip(systems, problems, strict=True) if problem]:
        summary = f"{len(failed)} of {len(systems)} systems failed: {'; '.join(failed)}"
        sys.exit(f"systems.py: {summary}; mend it and start again: what was done is kept")


def complete(system: System, options: argparse.Namespace) -> str | None:
    """Train and measure a system, each in a process, if not done yet. Returns a failed step, or None."""
    missing = [name for name in options.collections if not is_measured(record_path(options.records, name, system.recipe))]
    if not (missing or segments_missing(system.recipe, options)):
        return None
    steps = [["--train", system.recipe], *(["--measure", system.recipe, "--collections", name] for name in missing)]
    for step in steps:
        if problem := run_process(step, system.recipe, options):
            return problem
    return None


def is_measured(path: Path) -> bool:
    """Whether a record exists with everything that the tables need; older records lack the rank of the gold passage."""
    return path.exists() and GOLD_RANK in read_record(path).details


def run_process(arguments: Sequence[str], name: str, options: argparse.Namespace) -> str | None:
    """Run this program with other arguments, and print its time. Returns what went wrong, or None."""
    paths = [f"--data={options.data}", f"--runs={options.runs}", f"--records={options.records}", f"--cache={options.cache}"]
    counts = [f"--queries={options.queries}", f"--costly-queries={options.costly_queries}", f"--judged={options.judged}"]
    settings = [f"--set={setting}" for setting in options.set]
    command = [sys.executable, "-m", "benchmarks.systems", *arguments, *paths, *counts, *settings]
    environment = os.environ | ({"OMP_NUM_THREADS": str(threads(options.parallel))} if options.parallel > 1 else {})
    log, started = options.runs / f"{name}.log", time.perf_counter()
    print("+", *arguments, flush=True)
    with log.open("a", encoding="utf-8") if options.parallel > 1 else nullcontext() as out:
        code = subprocess.run(command, check=False, env=environment, stdout=out, stderr=out).returncode
    print(f"  {' '.join(arguments)}: {time.perf_counter() - started:.0f} s", flush=True)
    return f"{' '.join(arguments)} ended with {code}{f', see {log}' if out else ''}" if code else None


def threads(parallel: int) -> int:
    """CPU threads for each of `parallel` processes."""
    return max(1, (os.cpu_count() or 1) // parallel)


def train_system(recipe: str, options: argparse.Namespace, settings: Sequence[str] = ()) -> None:
    """Train a recipe in this process, or continue its training, unless it is finished."""
    run = options.runs / recipe
    if (run / "finished").exists():
        return
    judged = [f"best.judged={options.judged}"] if recipe == "best" else []
    loaded = load_recipe(RECIPES / f"{recipe}.yaml", [*judged, *settings, *options.set])
    procedure = train_best if loaded.best else train
    procedure(loaded, [Collection(options.data / name) for name in DEPTH], run, cache=options.cache)
    (run / "finished").touch()


def measured(name: str, collection_name: str, options: argparse.Namespace) -> None:
    """Measure one system on one collection in this process, and write its record."""
    collection = Collection(options.data / collection_name)
    candidates = collection.run("test")
    queries = sample(collection.split("test"), options.queries)
    system = next(system for system in SYSTEMS if system.recipe == name)
    if system.reads_all and collection_name == "qmsum":
        queries = queries[: options.costly_queries]
    run, depth = options.runs / name, DEPTH[collection_name]
    evaluation = evaluate(HeadRanker(name, run_ranker(run, collection), depth), collection, queries, candidates, measures=REPORTED)
    steps, seconds = cost(run)
    ranked_again = {query: list(candidates[query])[:depth] for query in evaluation.blocks}
    details = {"depth": depth, GOLD_RANK: gold_ranks(collection, evaluation.blocks, ranked_again)}
    record = record_evaluation(evaluation, collection_name, "test", steps=steps, training_seconds=seconds, details=details)
    write_record(record.model_copy(update={"ms_per_document": None}), options.records)  # see `latency`


def write_baselines(collection: Collection, options: argparse.Namespace) -> None:
    """Write the records of the first stage, and of its first candidates in random order."""
    queries, candidates = sample(collection.split("test"), options.queries), collection.run("test")
    given = {query: candidates[query] for query in queries if query in candidates}
    if not record_path(options.records, collection.name, FIRST_STAGE).exists():
        evaluation = evaluate_run(FIRST_STAGE, given, collection, queries, REPORTED)
        write_record(record_evaluation(evaluation, collection.name, "test"), options.records)
    if not record_path(options.records, collection.name, CHANCE).exists():
        evaluation = Evaluation(CHANCE, {}, chance(given, collection.qrels, queries, DEPTH[collection.name]))
        write_record(record_evaluation(evaluation, collection.name, "test"), options.records)


def chance(given: Run, qrels: Grades, queries: Sequence[str], depth: int) -> Values:
    """The expected values of re-ranking the first `depth` candidates at random, by query and measure.

    They are means over all rotations of several shuffles, so that each document is at each rank equally often. They are exact if
    one relevant document is among the candidates, and always for nDCG and P.
    """
    rng, drawn = random.Random(0), []
    for _ in range(SHUFFLES):
        heads = {query: rng.sample(list(given[query])[:depth], min(depth, len(given[query]))) for query in given}
        for turn in range(depth):
            turned = {query: [*head[turn:], *head[:turn], *list(given[query])[depth:]] for query, head in heads.items()}
            run = {query: {d: -float(rank) for rank, d in enumerate(order)} for query, order in turned.items()}
            drawn.append(per_query(qrels, run, queries, REPORTED))
    return mean_over_seeds(drawn)


def cost(run: Path) -> tuple[int, float]:
    """Steps and seconds of a run's training, with resumed parts and all iterations of BeST."""
    records = [r for log in (*run.glob("iteration-*/log.jsonl"), run / "log.jsonl") if log.exists() for r in read_log(log.parent)]
    steps = [r for r in records if "loss" in r]
    return len(steps), sum(r["seconds"] for r in steps)


def latency(options: argparse.Namespace) -> None:
    """Milliseconds a document of every system, measured in turns in one process: RECORDS/latency.json.

    A system that is not trained here is timed with the weights it starts from: latency does not depend on them.
    """
    runs = [timed_run(system.recipe, options) for system in SYSTEMS]
    found: dict[str, dict[str, float]] = {}
    for name in options.collections:
        collection = Collection(options.data / name)
        candidates, queries = collection.run("test"), sample(collection.split("test"), options.timed_queries)
        medians = milliseconds([run_ranker(run, collection) for run in runs], candidates, queries, DEPTH[name])
        found[name] = dict(zip((system.recipe for system in SYSTEMS), medians, strict=True))
        write_json(options.records / LATENCY, found)


def milliseconds(rankers: Sequence[LocalRanker], candidates: Run, queries: Sequence[str], depth: int) -> list[float]:
    """Milliseconds a document of each ranker: medians over the queries. Rankers take turns; documents are prepared before."""
    times: list[list[float]] = [[] for _ in rankers]
    for query in (query for query in queries if candidates.get(query)):
        documents = list(candidates[query])[:depth]
        for ranker, own in zip(rankers, times, strict=True):
            for document in documents:
                ranker.preparation.document(document)
            started = time.perf_counter()
            ranker.rerank(query, documents)
            own.append((time.perf_counter() - started) / len(documents) * 1000)
    return [statistics.median(own) for own in times]


def timed_run(recipe: str, options: argparse.Namespace) -> Path:
    """The system's run, or a run of a single step if it is not trained."""
    if (options.runs / recipe / "finished").exists():
        return Path(options.runs / recipe)
    untrained = argparse.Namespace(**vars(options) | {"runs": options.runs / "untrained", "judged": 1})
    settings = ["steps=1", "dev_queries=1", "dev_depth=2", *(["best.iterations=1"] if recipe == "best" else [])]
    train_system(recipe, untrained, settings)
    return Path(untrained.runs / recipe)


def with_latency(record: Record, latencies: Mapping[str, Mapping[str, float]]) -> Record:
    """The record with the time that `latency` measured, or without one: times of different days do not compare."""
    return record.model_copy(update={"ms_per_document": latencies.get(record.collection, {}).get(record.system)})


def publish(options: argparse.Namespace) -> None:
    """Write the tables between the page's two marks, and draw its pictures. Raises PageError if the marks are missing."""
    records = known_records(options)
    put(options.page, tables(records, options), BEGIN)
    for collection in dict.fromkeys(record.collection for record in records):
        here = [r for r in records if r.collection == collection and r.ms_per_document is not None]
        if not here:
            continue
        points = [Measured(r.system, r.ms_per_document or 0.0, r.means[MEASURES[0]]) for r in here]
        path = options.page.parent / PICTURE.format(slug(collection))
        path.parent.mkdir(exist_ok=True)
        draw_quality_latency(points, f"{MEASURES[0]}, {collection}").savefig(path, dpi=100)


def publish_gold(options: argparse.Namespace) -> None:
    """Write the table of gold passages into the page; its records may be of shorter trainings than those of the other tables.

    Raises PageError if the marks are missing, FileError if no record has the ranks of gold passages.
    """
    records = [record for record in ordered(read_records(options.publish_gold)) if record.details.get(GOLD_RANK)]
    if not records:
        raise FileError(f"{options.publish_gold}: no record has {GOLD_RANK}; measure with --records {options.publish_gold} first")
    texts = [f"{' '.join(map(conditions, by_collection(records)))}", gold_table(records)]
    put(options.page, "\n\n".join(texts), GOLD_MARK)


def by_collection(records: Sequence[Record]) -> list[list[Record]]:
    """The records of each collection."""
    names = dict.fromkeys(record.collection for record in records)
    return [[record for record in records if record.collection == name] for name in names]


def conditions(records: Sequence[Record]) -> str:
    """A sentence about the queries, depth and training steps of one collection's records."""
    queries = most_common({record.system: f"{len(record.queries)}" for record in records})
    steps = most_common({record.system: f"{record.steps or 0}" for record in records})
    depth = most_common({record.system: f"{record.details['depth']}" for record in records})
    return (
        f"On {records[0].collection}, the first {depth} candidates of {queries} test queries were ranked again, "
        f"after {steps} steps of training."
    )


def most_common(values: Mapping[str, str]) -> str:
    """The most common value, with the systems of other values in brackets: 100 (40: parade5, parade16; 60: best)."""
    systems_of: dict[str, list[str]] = {}
    for system, value in values.items():
        systems_of.setdefault(value, []).append(system)
    common, *rare = sorted(systems_of, key=lambda value: -len(systems_of[value]))
    exceptions = [f"{value}: {', '.join(systems_of[value])}" for value in rare]
    return f"{common} ({'; '.join(exceptions)})" if exceptions else common


def slug(collection: str) -> str:
    """A collection's name as part of a file name."""
    return "-".join(collection.replace(",", "").split())


def known_records(options: argparse.Namespace) -> list[Record]:
    """All records in the table's order, with latencies, by the table's sections."""
    path = options.records / LATENCY
    latencies = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    timed = [with_latency(record, latencies) for record in ordered(read_records(options.records))]
    return [narrowed for record in timed for narrowed in sections(record, options)]


def tables(records: Sequence[Record], options: argparse.Namespace) -> str:
    """All tables in Markdown: systems, claims, gold passages and segments."""
    parts = []
    if any(record.system == REFERENCE for record in records):
        parts = [systems_table(records, REFERENCE, MEASURES)]
        names = {record.system for record in records}
        if claims := [claim for claim in CLAIMS if set(claim) <= names]:
            parts.append(comparisons_table(tested(records, claims)))
    if any(record.details.get(GOLD_RANK) for record in records):
        parts.append(gold_table(records))
    if (options.records / SEGMENTS).exists():
        parts.append(segment_table(json.loads((options.records / SEGMENTS).read_text(encoding="utf-8"))))
    return "\n\n".join(parts)


def gold_table(records: Sequence[Record]) -> str:
    """How often the best passage that a system returns overlaps the gold passage, and how often one of the best three does.

    Only queries with a gold passage in a re-ranked document count.
    """
    shares = ["gold in the best returned passage", "gold among the three best returned passages"]
    rows = [["collection", "system", MEASURES[0], "queries", "with a gold passage", *shares]]
    for record in records:
        by_query: Mapping[str, int | None] = record.details.get(GOLD_RANK, {})
        ranks = [by_query[query] for query in record.queries if query in by_query]
        if ranks:
            found = [statistics.fmean(rank is not None and rank <= most for rank in ranks) for most in (1, 3)]
            counts = [f"{record.means[MEASURES[0]]:.3f}", str(len(record.queries)), str(len(ranks))]
            rows.append([record.collection, record.system, *counts, *(f"{share:.3f}" for share in found)])
    return markdown(rows)


def tested(records: Sequence[Record], claims: Sequence[tuple[str, str]]) -> list[Comparison]:
    """The claims' tests, as one family. A collection's first queries count only if one side was not measured on all queries."""
    found = compare_pairs(records, claims, "RR@10", "none")
    on_all = {(c.first, c.second, c.collection) for c in found}
    kept = [c for c in found if "," not in c.collection or (c.first, c.second, c.collection.partition(",")[0]) not in on_all]
    return [replace(c, p=p) for c, p in zip(kept, correct([c.p for c in kept], "holm"), strict=True)]


def ordered(records: Sequence[Record]) -> list[Record]:
    """Collections in the table's order, and systems within them."""
    place = {name: number for number, name in enumerate([FIRST_STAGE, CHANCE, *(system.recipe for system in SYSTEMS)])}
    return sorted(records, key=lambda r: (list(DEPTH).index(r.collection), place[r.system]))


def sections(record: Record, options: argparse.Namespace) -> Iterator[Record]:
    """The record in the section of all queries, and, on a collection with costly rows, in that of the first few."""
    few = options.costly_queries
    if len(record.queries) > few or record.collection != "qmsum":
        yield record
    if record.collection == "qmsum":
        values = {measure: column[:few] for measure, column in record.values.items()}
        section = f"qmsum, {few} queries"
        yield record.model_copy(update={"collection": section, "queries": record.queries[:few], "values": values})


def segments_missing(recipe: str, options: argparse.Namespace) -> bool:
    """Whether RECORDS/segments.json lacks a system's rows, because the program was stopped after writing its records."""
    path = options.records / SEGMENTS
    known = [row["iteration"] for row in json.loads(path.read_text(encoding="utf-8"))] if path.exists() else []
    row = {"best": 1, "maxp": "MaxP"}
    return recipe in row and row[recipe] not in known


def keep_segments(recipe: str, options: argparse.Namespace) -> None:
    """Add a system's segment P@1 to RECORDS/segments.json: that of BeST's iterations, or of MaxP."""
    path = options.records / SEGMENTS
    found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else []
    if recipe == "best":
        rows = json.loads((options.runs / recipe / TABLE).read_text(encoding="utf-8"))
    elif recipe == "maxp":
        rows = [{"iteration": "MaxP", "P@1": segment_precision(options.runs / recipe, options)}]
    else:
        return
    new = {row["iteration"] for row in rows}
    write_json(path, [row for row in found if row["iteration"] not in new] + rows)


def segment_precision(run: Path, options: argparse.Namespace) -> dict[str, dict[str, float]]:
    """Segment P@1 of a run's ranker by collection and split, on the queries that BeST's iterations are measured on."""
    pipeline = load_run_pipeline(run)
    preparations = {name: Preparation(Collection(options.data / name), pipeline) for name in DEPTH}
    judged = judged_pairs(preparations, {"train": "train", "dev": "dev"}, options.judged)
    return precision(load_ranker(chosen(run)).to(fastest_device()), preparations, judged)


def segment_table(rows: Sequence[dict[str, Any]]) -> str:
    """BeST's Table 2: segment P@1 by iteration on train and dev, beside random and MaxP, and the document ranking on dev."""
    names = list(rows[0]["P@1"])
    splits = [(name, split) for name in names for split in ("train", "dev")]
    head = ["segments chosen by", *(f"{n}, P@1 {split}" for n, split in splits), *(f"{n}, RR@10 dev" for n in names)]
    cells = [
        [
            str(row["iteration"]),
            *(f"{row['P@1'][n][split]:.3f}" for n, split in splits),
            *(f"{row['dev'][n]['RR@10']:.3f}" if "dev" in row else "" for n in names),
        ]
        for row in sorted(rows, key=lambda row: str(row["iteration"]).isdigit())
    ]
    return markdown([head, *cells])


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser("systems.py", description="Train, measure and tabulate every system; resumable.")
    made.add_argument("--data", type=Path, help="the directory of the collections; needed unless tables are written")
    made.add_argument("--runs", type=Path, default=Path("runs"), help="where trainings go")
    made.add_argument("--records", type=Path, default=ROOT / "docs" / "results", help="where measurements go")
    made.add_argument("--collections", nargs="+", choices=list(DEPTH), default=list(DEPTH), help="to measure on")
    made.add_argument("--only", nargs="+", choices=[system.recipe for system in SYSTEMS], help="these systems")
    made.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key of every recipe")
    made.add_argument("--queries", type=int, default=200, help="test queries of a collection, a fixed sample")
    made.add_argument("--costly-queries", type=int, default=40, help="of qmsum for systems that score every block")
    made.add_argument("--judged", type=int, default=100, help="queries of a collection and split whose segment P@1 is measured")
    made.add_argument("--latency", action="store_true", help="only time every system, in turns")
    made.add_argument("--timed-queries", type=int, default=10, help="test queries of a collection that are timed")
    made.add_argument("--publish", action="store_true", help="only write the tables of what is measured into --page")
    made.add_argument("--publish-gold", type=Path, metavar="RECORDS", help="only write the table of gold passages of these records")
    made.add_argument("--page", type=Path, default=PAGE, help="a Markdown page with a marked place for the tables")
    made.add_argument("--parallel", type=int, default=1, metavar="N", help="systems that are trained and measured at once")
    made.add_argument("--cache", type=Path, default=default_directory(), help="where prepared documents are kept (%(default)s)")
    made.add_argument("--train", help=argparse.SUPPRESS)
    made.add_argument("--measure", help=argparse.SUPPRESS)
    return made


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    command = parser()
    given = command.parse_args()
    if given.data is None and not (given.publish or given.publish_gold):
        command.error("--data is needed: the directory of the collections")
    given.records.mkdir(parents=True, exist_ok=True)
    given.runs.mkdir(parents=True, exist_ok=True)
    if given.train:
        train_system(given.train, given)
    elif given.measure:
        measured(given.measure, given.collections[0], given)
    elif given.latency:
        latency(given)
        print(tables(known_records(given), given))
    elif given.publish or given.publish_gold:
        try:
            publish_gold(given) if given.publish_gold else publish(given)
        except (PageError, FileError) as error:
            sys.exit(f"systems.py: {error}")
    else:
        main(given)
