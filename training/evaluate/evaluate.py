"""Measures a ranker on a split of a collection: a TREC run, per-query values, latency and memory of the same run."""

import random
import statistics
import time
from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from ir_measures import Measure
from tqdm import tqdm

from training.data.collection import Collection
from training.data.files import numbered_lines, read_run, write_run
from training.data.first_stage import first_stage_run
from training.data.types import FileError, Run
from training.evaluate.measures import DEFAULT_MEASURES, Values, mean_over_seeds, means, per_query
from training.evaluate.ranking import HttpRanker, LocalRanker, Ranker, Reranked
from training.evaluate.resources import Memory, peak_memory

SHUFFLES = 10
BEST_BLOCKS = 3
RUN_FILE, VALUES_FILE = "run.trec.gz", "per_query.tsv"

Blocks = Mapping[str, Mapping[str, list[tuple[int, int]]]]
"""Offsets of a document's selected blocks, best first, by document, by query."""


@dataclass
class Evaluation:
    """The measurements of one system.

    Attributes:
        name: the system's name.
        run: the system's run; empty for several seeds together.
        values: per query, the mean over the seeds.
        seconds: the time of each query with candidates, without the preparation of documents, which a service does beforehand.
        documents: how many candidates each of those queries had.
        gold_hits: by query, the share of seeds whose best blocks overlap the gold passage.
        memory: the peak while ranking (the largest of the seeds'); unknown for a service, which runs elsewhere.
        blocks: the selected blocks; empty for several seeds together.
        seeds: the number of seeds.
    """

    name: str
    run: Run
    values: Values
    seconds: list[float] = field(default_factory=list)
    documents: list[int] = field(default_factory=list)
    gold_hits: Mapping[str, float] = field(default_factory=dict)
    memory: Memory = field(default_factory=Memory)
    blocks: Blocks = field(default_factory=dict)
    seeds: int = 1

    @property
    def gold_share(self) -> float | None:
        """Share of queries whose gold passage overlaps one of the best returned blocks of its document; None without spans."""
        return statistics.fmean(self.gold_hits.values()) if self.gold_hits else None

    @property
    def ms_per_document(self) -> float | None:
        """Milliseconds to re-rank a document: the median over the queries, so that a slow start or a busy moment does not count."""
        each = [1000 * seconds / count for seconds, count in zip(self.seconds, self.documents, strict=True)]
        return statistics.median(each) if each else None

    @property
    def mean_ms_per_document(self) -> float | None:
        """Milliseconds of all queries divided by all documents, as in KeyB's Tables 8 and 9."""
        return 1000 * sum(self.seconds) / sum(self.documents) if self.seconds else None


def evaluate(
    ranker: Ranker,
    collection: Collection,
    queries: Sequence[str],
    candidates: Run,
    workers: int = 1,
    measures: Sequence[Measure] = DEFAULT_MEASURES,
) -> Evaluation:
    """Re-rank the candidates of each query and measure. A query without candidates scores zero.

    `workers` requests are under way at once: for a service, whose batches several requests share.
    """
    with_candidates = [q for q in queries if candidates.get(q)]
    found: dict[str, Reranked] = {}
    seconds = []

    def rerank(query: str) -> tuple[str, Reranked, float]:
        _prepare(ranker, candidates[query])
        started = time.perf_counter()
        return query, ranker.rerank(query, list(candidates[query])), time.perf_counter() - started

    with peak_memory() as memory, ThreadPoolExecutor(workers) as pool:
        results = pool.map(rerank, with_candidates)
        for query, reranked, elapsed in tqdm(results, total=len(with_candidates), desc=ranker.name):
            found[query] = reranked
            seconds.append(elapsed)
    evaluation = evaluate_run(ranker.name, {q: found[q].scores for q in with_candidates}, collection, queries, measures)
    evaluation.seconds, evaluation.documents = seconds, [len(candidates[q]) for q in with_candidates]
    evaluation.blocks = {q: found[q].blocks for q in with_candidates}
    evaluation.gold_hits = gold_hits(collection, evaluation.blocks, candidates)
    evaluation.memory = Memory() if isinstance(ranker, HttpRanker) else memory
    return evaluation


def _prepare(ranker: Ranker, documents: Iterable[str]) -> None:
    """Tokenize and segment documents before the clock starts, since that can be done offline (KeyB, section 6.4)."""
    if isinstance(ranker, LocalRanker):
        for document in documents:
            ranker.preparation.document(document)


def evaluate_run(
    name: str, run: Run, collection: Collection, queries: Sequence[str], measures: Sequence[Measure] = DEFAULT_MEASURES
) -> Evaluation:
    """Measure a run. A query that the run lacks scores zero."""
    kept = {q: run[q] for q in queries if q in run}
    return Evaluation(name, kept, per_query(collection.qrels, kept, queries, measures))


def average_seeds(name: str, seeds: Sequence[Evaluation]) -> Evaluation:
    """Join several seeds of one system: values averaged per query, the times of all seeds, the largest memory.

    Raises ValueError if the seeds were not measured on the same queries by the same measures.
    """
    hits = {query: statistics.fmean(seed.gold_hits[query] for seed in seeds) for query in seeds[0].gold_hits}
    return Evaluation(
        name,
        run={},
        values=mean_over_seeds([seed.values for seed in seeds]),
        seconds=[seconds for seed in seeds for seconds in seed.seconds],
        documents=[count for seed in seeds for count in seed.documents],
        gold_hits=hits,
        memory=max((seed.memory for seed in seeds), key=lambda memory: memory.peak_mb or 0.0),
        seeds=len(seeds),
    )


def gold_hits(collection: Collection, blocks: Blocks, candidates: Mapping[str, Container[str]]) -> dict[str, float]:
    """Whether the gold passage overlaps one of its document's best three blocks, for each query of `gold_ranks`."""
    return {q: rank is not None and rank <= BEST_BLOCKS for q, rank in gold_ranks(collection, blocks, candidates).items()}


def gold_ranks(collection: Collection, blocks: Blocks, candidates: Mapping[str, Container[str]]) -> dict[str, int | None]:
    """By query, the rank (from 1) of the first returned block that overlaps the query's gold passage; None if no block does.

    Counts the queries with a gold passage in one of their candidates. Of several passages the best rank counts.
    """
    ranks: dict[str, int | None] = {}
    for query, by_document in blocks.items():
        gold = [span for span in collection.spans.get(query, ()) if span.doc_id in candidates[query]]
        if gold:
            found = (
                rank
                for span in gold
                for rank, (start, end) in enumerate(by_document.get(span.doc_id, ()), 1)
                if start < span.end and end > span.start
            )
            ranks[query] = min(found, default=None)
    return ranks


def baselines(
    collection: Collection, queries: Sequence[str], candidates: Run, measures: Sequence[Measure] = DEFAULT_MEASURES
) -> dict[str, Values]:
    """The values of the first stage, and of its candidates shuffled (mean of ten seeds)."""
    first = per_query(collection.qrels, candidates, queries, measures)
    draws = []
    for seed in range(SHUFFLES):
        rng = random.Random(seed)
        shuffled = {q: dict.fromkeys(rng.sample(sorted(candidates.get(q, {})), len(candidates.get(q, {}))), 0.0) for q in queries}
        draws.append(per_query(collection.qrels, shuffled, queries, measures))
    mean = {m: {q: float(np.mean([d[m][q] for d in draws])) for q in queries} for m in first}
    return {"first stage": first, "shuffled": mean}


def summary(evaluation: Evaluation, collection: Collection, split: str) -> dict[str, Any]:
    """The figures of one evaluation as JSON."""
    return {
        "system": evaluation.name,
        "collection": collection.name,
        "split": split,
        "queries": len(next(iter(evaluation.values.values()))),
        "measures": means(evaluation.values),
        "gold_in_best_blocks": evaluation.gold_share,
        "queries_with_gold_among_candidates": len(evaluation.gold_hits) if collection.has_spans else None,
        "seeds": evaluation.seeds,
        "seconds_per_query": statistics.median(evaluation.seconds) if evaluation.seconds else None,
        "ms_per_document": evaluation.ms_per_document,
        "mean_ms_per_document": evaluation.mean_ms_per_document,
        "peak_rss_mb": evaluation.memory.rss_mb,
        "peak_cuda_mb": evaluation.memory.cuda_mb,
    }


def write_values(values: Values, path: Path) -> None:
    """Per-query values as tab-separated lines: query, measure, value."""
    lines = [f"{query}\t{measure}\t{value:.6f}" for measure, by_query in values.items() for query, value in by_query.items()]
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
    """Another system's values for exactly these queries: from its TREC run, its per_query.tsv, or the directory of either.

    A directory of several measured seeds gives their mean per query.
    Raises FileError for a damaged or missing file, and for a per_query.tsv that lacks a measure or a query.
    """
    if path.is_dir():
        return mean_over_seeds([read_system(file, collection, queries, measures) for file in _system_files(path)])
    if path.suffix != ".tsv":
        return per_query(collection.qrels, read_run(path), queries, measures)
    values = read_values(path)
    for measure in map(str, measures):
        if missing := [q for q in queries if q not in values.get(measure, {})]:
            raise FileError(f"{path}: has no {measure} of query {missing[0]}: it was measured otherwise; give its TREC run instead")
    return {measure: {q: values[measure][q] for q in queries} for measure in map(str, measures)}


def _system_files(directory: Path) -> list[Path]:
    """The directory's own TREC run, else those of its seeds, as `keyblock-evaluate` names them, else of whatever directories.

    A run can be measured by any measure.
    """
    for pattern in (RUN_FILE, f"seed-*/{RUN_FILE}", f"*/{RUN_FILE}"):
        if files := sorted(directory.glob(pattern)):
            return files
    raise FileError(f"{directory}: holds no {RUN_FILE}, and no directory in it does; keyblock-evaluate --out writes it")


def system_name(path: Path) -> str:
    """A system's name by its path: the directory of a file that `write_evaluation` named, else the file or directory itself."""
    if path.is_dir():
        return path.resolve().name
    return path.resolve().parent.name if path.name in (RUN_FILE, VALUES_FILE) else path.name.partition(".")[0]


def write_evaluation(evaluation: Evaluation, out: Path) -> None:
    """Write OUT/per_query.tsv, and for a single seed OUT/run.trec.gz (several seeds have no common run)."""
    out.mkdir(parents=True, exist_ok=True)
    if evaluation.seeds == 1:
        write_run(evaluation.run, out / RUN_FILE, evaluation.name.replace(" ", "-"))
    write_values(evaluation.values, out / VALUES_FILE)


def sample(queries: Iterable[str], count: int | None) -> list[str]:
    """A fixed random sample of `count` queries; all of them, in order, if there are no more or count is None."""
    queries = list(queries)
    if count is None or count >= len(queries):
        return queries
    return random.Random(0).sample(queries, count)


def sampled_run(collection: Collection, split: str, queries: int, depth: int) -> Run:
    """The first-stage candidates, `depth` at most, of a fixed random sample of a split's queries that have some."""
    run = first_stage_run(collection, split, depth)
    return {query: run[query] for query in sample(sorted(run), queries)}
