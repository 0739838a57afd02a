"""Tests of claims that one measured system is better than another, and their table."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lab.records import Record
from training.evaluate.significance import correct, p_text, paired_t_test
from training.evaluate.tables import markdown

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class Comparison:
    """The test of a claim that `first` is better than `second`, per query on one collection.

    Attributes:
        first: name of the first system.
        second: name of the second system.
        collection: name of the collection.
        measure: name of the measure.
        queries: the number of queries.
        difference: mean of the first minus mean of the second.
        interval: the 95% confidence interval of the difference, not corrected.
        p: two-sided, corrected within the claim's family.
    """

    first: str
    second: str
    collection: str
    measure: str
    queries: int
    difference: float
    interval: tuple[float, float]
    p: float

    @property
    def verdict(self) -> str:
        """Whether the first is "better" or "worse"; "undecided" if the difference is not significant."""
        if self.p > SIGNIFICANT:
            return "undecided"
        return "better" if self.difference > 0 else "worse"


def compare_pairs(
    records: Sequence[Record], pairs: Sequence[tuple[str, str]], measure: str, correction: str = "holm"
) -> list[Comparison]:
    """Test each pair on every collection where both were measured, as one family. Raises ValueError for a pair measured nowhere."""
    found: list[tuple[Record, Record]] = []
    for names in pairs:
        both = [_both(records, names, name) for name in dict.fromkeys(record.collection for record in records)]
        if not any(both):
            raise ValueError(f"{names[0]!r} and {names[1]!r} were not both measured on any collection")
        found += [one for one in both if one]
    values = [_values(*both, measure) for both in found]
    tests = correct([paired_t_test(first, second) for first, second in values], correction)
    return [
        Comparison(
            a.system,
            b.system,
            a.collection,
            measure,
            len(a.queries),
            a.means[measure] - b.means[measure],
            difference_interval(first, second),
            p,
        )
        for (a, b), (first, second), p in zip(found, values, tests, strict=True)
    ]


def _both(records: Sequence[Record], names: tuple[str, str], collection: str) -> tuple[Record, Record] | None:
    by_system = {record.system: record for record in records if record.collection == collection}
    return (by_system[names[0]], by_system[names[1]]) if set(names) <= by_system.keys() else None


def _values(a: Record, b: Record, measure: str) -> tuple[Mapping[str, float], Mapping[str, float]]:
    """The values of both by query. Raises ValueError if they were not measured on the same queries."""
    first, second = a.by_query.get(measure), b.by_query.get(measure)
    if first is None or second is None or first.keys() != second.keys():
        raise ValueError(f"{a.collection}: {b.system!r} and {a.system!r} were not both measured by {measure} on the same queries")
    return first, second


def comparisons_table(comparisons: Sequence[Comparison]) -> str:
    """A row for each comparison: the difference, its corrected p-value, and whether the first is better."""
    head = ["first", "second", "collection", "measure", "queries", "difference", "95% interval", "p", "the first is"]
    rows = [
        [
            *(c.first, c.second, c.collection, c.measure, str(c.queries)),
            *(f"{c.difference:+.4f}", f"{c.interval[0]:+.3f} to {c.interval[1]:+.3f}", p_text(c.p), c.verdict),
        ]
        for c in comparisons
    ]
    return markdown([head, *rows])


def difference_interval(first: Mapping[str, float], second: Mapping[str, float]) -> tuple[float, float]:
    """The 95% confidence interval of the mean difference over the queries of `first`, by the t-distribution of the paired test.

    A query that `second` lacks counts as zero. Raises ValueError with fewer than two queries.
    """
    from scipy.stats import t as student_t

    if len(first) < 2:
        raise ValueError(f"an interval needs at least two queries, not {len(first)}")
    differences = np.asarray([value - second.get(query, 0.0) for query, value in first.items()])
    error = float(differences.std(ddof=1)) / math.sqrt(len(differences))
    reach = float(student_t.ppf(0.975, len(differences) - 1)) * error
    return float(differences.mean()) - reach, float(differences.mean()) + reach
