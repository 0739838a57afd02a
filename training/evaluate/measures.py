"""Computes ranking measures per query, with `ir_measures` and over seeds; a query missing from a run counts as zero."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import fmean

import ir_measures
import numpy as np
from ir_measures import AP, RR, Measure, P, R, nDCG

from training.data.types import Run

DEFAULT_MEASURES: tuple[Measure, ...] = (RR @ 10, nDCG @ 10)

# the papers' measures: MRR (BeST, Table 1), and P, MAP and nDCG at several ranks (KeyB, Tables 4 to 7); recall is added
REPORTED: tuple[Measure, ...] = (
    *(RR @ 10, nDCG @ 1, nDCG @ 5, nDCG @ 10, nDCG @ 20, AP),
    *(P @ 1, P @ 5, P @ 10, P @ 20, R @ 10, R @ 100),
)
MEASURE_SETS: dict[str, tuple[Measure, ...]] = {"default": DEFAULT_MEASURES, "reported": REPORTED}

Grades = Mapping[str, Mapping[str, int]]
Values = dict[str, dict[str, float]]
"""Values by measure and query."""


def per_query(qrels: Grades, run: Run, queries: Iterable[str], measures: Iterable[Measure] = DEFAULT_MEASURES) -> Values:
    """Each measure's value for each query; 0 where the run lacks the query."""
    wanted, names = list(queries), list(measures)
    judged = {query: dict(qrels[query]) for query in wanted if query in qrels}
    # rank order is what counts: ir_measures breaks ties by document id, which would reorder equal scores
    ranks = {q: {d: -float(rank) for rank, d in enumerate(run[q])} for q in wanted if q in run}
    values = {str(measure): dict.fromkeys(wanted, 0.0) for measure in names}
    for result in ir_measures.iter_calc(names, judged, ranks):
        values[str(result.measure)][result.query_id] = float(result.value)
    return values


def parse_measures(names: Iterable[str]) -> list[Measure]:
    """The measures of these `ir_measures` names, each once; the name of a set in MEASURE_SETS stands for its members.

    Raises ValueError for a measure that ir_measures does not know or cannot compute here.
    """
    return list(dict.fromkeys(measure for name in names for measure in MEASURE_SETS.get(name) or [_parse(name)]))


def _parse(name: str) -> Measure:
    try:
        measure = ir_measures.parse_measure(name)
        if measure.params.get("cutoff", 1) < 1:  # trec_eval ends the process
            raise ValueError("its cutoff must be at least 1")
        list(
            ir_measures.iter_calc([measure], {"q1": {"d1": 1}}, {"q1": {"d1": 1.0}})
        )  # a missing tool is found now, not at the end
    except Exception as error:  # NameError, AssertionError, CalledProcessError: each measure and provider has its own
        raise ValueError(f"measure {name!r} cannot be computed ({error}); see ir_measur.es for those that can") from None
    return measure


def means(values: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean of each measure over the queries."""
    return {measure: float(np.mean(list(by_query.values()))) for measure, by_query in values.items()}


def seed_runs(path: Path) -> list[Path]:
    """The runs of a path: the path itself, or the run directories in it (seeds of one system) if it is not a run."""
    if (path / "pipeline.json").exists():
        return [path]
    return sorted(inner.parent for inner in path.glob("*/pipeline.json")) or [path]


def mean_over_seeds(seeds: Sequence[Values]) -> Values:
    """Each query's mean over the seeds, by measure. Raises ValueError if the seeds differ in measures or queries."""
    first = seeds[0]
    for values in seeds[1:]:
        if {m: set(queries) for m, queries in values.items()} != {m: set(queries) for m, queries in first.items()}:
            raise ValueError("seeds of one system must be measured on the same queries, by the same measures: measure them again")
    return {measure: {q: fmean(values[measure][q] for values in seeds) for q in queries} for measure, queries in first.items()}
