"""Measuring a ranker on a split of a collection: a TREC run, per-query values, the table and its p-values."""

import random
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ir_measures import Measure
from tqdm import tqdm

from training.collection import Collection
from training.lines import FileError, numbered_lines
from training.measures import DEFAULT_MEASURES, means, per_query
from training.ranking import Ranker, Reranked
from training.runs import Run, read_run, write_run
from training.significance import paired_t_test

SHUFFLES = 10
BEST_BLOCKS = 3
RUN_FILE, VALUES_FILE = "run.trec.gz", "per_query.tsv"

Values = dict[str, dict[str, float]]
"""A measure's value by query, by measure."""


@dataclass
class Evaluation:
    """What was measured of one system."""

    name: str
    run: Run
    values: Values
    seconds: list[float]
    gold_hits: dict[str, bool]

    @property
    def gold_share(self) -> float | None:
        """Share of queries whose gold passage overlaps one of the best returned blocks of its document; None without spans."""
        return statistics.fmean(self.gold_hits.values()) if self.gold_hits else None


def evaluate(
    ranker: Ranker, collection: Collection, queries: Sequence[str], candidates: Run, workers: int = 1, progress: bool = True
) -> Evaluation:
    """Re-rank the candidates of each query and measure. A query without candidates scores zero.

    `workers` requests are under way at once: for a service, whose batches several requests share.
    """
    found: dict[str, Reranked] = {}
    seconds = []
    askable = [q for q in queries if candidates.get(q)]

    def ask(query: str) -> tuple[str, Reranked, float]:
        started = time.perf_counter()
        return query, ranker.rerank(query, list(candidates[query])), time.perf_counter() - started

    with ThreadPoolExecutor(workers) as pool:
        for query, reranked, taken in tqdm(pool.map(ask, askable), total=len(askable), desc=ranker.name, disable=not progress):
            found[query] = reranked
            seconds.append(taken)
    run = {q: found[q].scores for q in askable}
    values = per_query(collection.qrels, run, queries)
    return Evaluation(ranker.name, run, values, seconds, gold_hits(collection, found, candidates))


def gold_hits(collection: Collection, found: Mapping[str, Reranked], candidates: Run) -> dict[str, bool]:
    """Whether the gold passage overlaps one of its document's best three blocks, for each query with one among its candidates."""
    hits: dict[str, bool] = {}
    for query, reranked in found.items():
        gold = [span for span in collection.spans.get(query, ()) if span.doc_id in candidates[query]]
        if gold:
            hits[query] = any(
                start < span.end and end > span.start
                for span in gold
                for start, end in reranked.blocks.get(span.doc_id, [])[:BEST_BLOCKS]
            )
    return hits


def baselines(
    collection: Collection, queries: Sequence[str], candidates: Run, measures: Sequence[Measure] = DEFAULT_MEASURES
) -> dict[str, Values]:
    """The first stage as given, and its candidates shuffled (mean of ten seeds)."""
    first = per_query(collection.qrels, candidates, queries, measures)
    draws = []
    for seed in range(SHUFFLES):
        rng = random.Random(seed)
        shuffled = {q: dict.fromkeys(rng.sample(sorted(candidates.get(q, {})), len(candidates.get(q, {}))), 0.0) for q in queries}
        draws.append(per_query(collection.qrels, shuffled, queries, measures))
    mean = {m: {q: float(np.mean([d[m][q] for d in draws])) for q in queries} for m in first}
    return {"first stage": first, "shuffled": mean}


def table(systems: Mapping[str, Values], reference: str) -> str:
    """Markdown: each system's means, and the p-value of its difference from the reference (none for a single query)."""
    measures = list(next(iter(systems.values())))
    head = "| system | " + " | ".join(f"{m} | p" for m in measures) + " |"
    lines = [head, "|" + " --- |" * (1 + 2 * len(measures))]
    for name, values in systems.items():
        cells = []
        for measure in measures:
            tested = name != reference and len(values[measure]) > 1
            p = f"{paired_t_test(values[measure], systems[reference][measure]):.2g}" if tested else ""
            cells += [f"{means(values)[measure]:.4f}", p]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def summary(evaluation: Evaluation, collection: Collection, split: str) -> dict[str, Any]:
    """The figures of one evaluation as JSON."""
    return {
        "system": evaluation.name,
        "collection": collection.name,
        "split": split,
        "queries": len(next(iter(evaluation.values.values()))),
        "measures": means(evaluation.values),
        "gold_in_best_blocks": evaluation.gold_share,
        "queries_with_gold_among_candidates": len(evaluation.gold_hits),
        "seconds_per_query": statistics.median(evaluation.seconds) if evaluation.seconds else None,
    }


def write_values(values: Values, path: Path) -> None:
    """Per-query values as tab-separated lines: query, measure, value."""
    lines = [f"{query}\t{measure}\t{value:.6f}" for measure, of_query in values.items() for query, value in of_query.items()]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def read_values(path: Path) -> Values:
    """Read what `write_values` wrote. Raises FileError naming a bad line."""
    values: Values = {}
    for number, line in numbered_lines(path):
        try:
            query, measure, value = line.rstrip("\n").split("\t")
            values.setdefault(measure, {})[query] = float(value)
        except ValueError:
            raise FileError(f"{path}: line {number} must be query<TAB>measure<TAB>value, not {line.strip()[:80]!r}") from None
    return values


def read_system(path: Path, collection: Collection, queries: Sequence[str], measures: Sequence[Measure]) -> Values:
    """Another system's values for exactly these queries, from its TREC run or its per_query.tsv.

    Raises FileError when the file is damaged, or a per_query.tsv was measured otherwise.
    """
    if path.suffix != ".tsv":
        return per_query(collection.qrels, read_run(path), queries, measures)
    values = read_values(path)
    for measure in map(str, measures):
        if missing := [q for q in queries if q not in values.get(measure, {})]:
            raise FileError(f"{path}: has no {measure} of query {missing[0]}: it was measured otherwise; give its TREC run instead")
    return {measure: {q: values[measure][q] for q in queries} for measure in map(str, measures)}


def system_name(path: Path) -> str:
    """What a file's system is called: its directory for the file names that `write_evaluation` uses, else the file."""
    return path.resolve().parent.name if path.name in (RUN_FILE, VALUES_FILE) else path.name.partition(".")[0]


def write_evaluation(evaluation: Evaluation, out: Path) -> None:
    """Write OUT/run.trec.gz and OUT/per_query.tsv."""
    out.mkdir(parents=True, exist_ok=True)
    write_run(evaluation.run, out / RUN_FILE, evaluation.name.replace(" ", "-"))
    write_values(evaluation.values, out / VALUES_FILE)


def sample(queries: Iterable[str], count: int | None) -> list[str]:
    """The first `count` of the queries in an order fixed by a seed; all of them, in order, when count is None."""
    queries = list(queries)
    if count is None or count >= len(queries):
        return queries
    return random.Random(0).sample(queries, count)
