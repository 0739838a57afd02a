"""Ranking measures by `ir_measures`, per query; a query missing from a run counts as zero."""

from collections.abc import Iterable, Mapping

import ir_measures
import numpy as np
from ir_measures import RR, Measure, nDCG

from training.runs import Run

DEFAULT_MEASURES: tuple[Measure, ...] = (RR @ 10, nDCG @ 10)
Grades = Mapping[str, Mapping[str, int]]


def per_query(
    qrels: Grades, run: Run, queries: Iterable[str], measures: Iterable[Measure] = DEFAULT_MEASURES
) -> dict[str, dict[str, float]]:
    """Each measure's value for each query; 0 where the run lacks the query."""
    wanted, names = list(queries), list(measures)
    judged = {query: dict(qrels[query]) for query in wanted if query in qrels}
    # rank order is what counts: ir_measures breaks ties by document id, which would reorder equal scores
    ranks = {q: {d: -float(rank) for rank, d in enumerate(run[q])} for q in wanted if q in run}
    values = {str(measure): dict.fromkeys(wanted, 0.0) for measure in names}
    for result in ir_measures.iter_calc(names, judged, ranks):
        values[str(result.measure)][result.query_id] = float(result.value)
    return values


def means(values: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The mean of each measure over the queries."""
    return {measure: float(np.mean(list(of_query.values()))) for measure, of_query in values.items()}
