"""Long tables of records: quality with corrected p-values, latency, memory and training costs, and tests of claims."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from lab.records import Record
from training.evaluate.measures import Values
from training.evaluate.significance import correct, p_text, paired_t_test
from training.evaluate.tables import markdown, p_values_of

SIGNIFICANT = 0.05


def systems_table(records: Sequence[Record], reference: str, measures: Sequence[str]) -> str:
    """A row for each system and collection, grouped by collection: means, p-values against `reference`, and costs.

    Systems and collections stand in the order in which `records` first name them. The p-values of one measure on one collection
    are one family. Raises ValueError if the reference was not measured on a collection, or a record is of other queries or
    measures.
    """
    seeds = any(record.seeds > 1 for record in records)
    head = ["collection", "system", *(cell for m in measures for cell in (m, "p")), *COSTS, *(["seeds"] if seeds else [])]
    rows = [head]
    for collection in dict.fromkeys(record.collection for record in records):
        here = [record for record in records if record.collection == collection]
        values = _comparable(here, reference, measures)
        p_values = {measure: p_values_of(values, reference, measure) for measure in measures}
        for record in here:
            quality = [cell for m in measures for cell in (f"{record.means[m]:.4f}", p_values[m].get(record.system, ""))]
            system = f"**{record.system}**" if record.system == reference else record.system
            rows.append([collection, system, *quality, *_costs(record), *([str(record.seeds)] if seeds else [])])
    return markdown(rows)


COSTS = ("ms a document", "peak MB", "steps", "training, minutes")


def _costs(record: Record) -> list[str]:
    milliseconds, memory = record.ms_per_document, record.peak_mb
    return [
        "" if milliseconds is None else f"{milliseconds:.2f}",
        "" if memory is None else f"{memory:.0f}",
        "" if record.steps is None else f"{record.steps:,}",
        "" if record.training_seconds is None else f"{record.training_seconds / 60:.0f}",
    ]


def _comparable(records: Sequence[Record], reference: str, measures: Sequence[str]) -> dict[str, Values]:
    """Values by system. Raises ValueError for repeated systems, a missing reference, and different queries or measures."""
    collection, values = records[0].collection, {record.system: record.by_query for record in records}
    if len(values) < len(records):
        raise ValueError(f"{collection}: two records of one system; keep one of them")
    if reference not in values:
        raise ValueError(f"{collection}: the reference {reference!r} was not measured there; measured were {', '.join(values)}")
    for system, by_measure in values.items():
        for measure in measures:
            if set(by_measure.get(measure, ())) != set(values[reference].get(measure, ())) or measure not in by_measure:
                raise ValueError(
                    f"{collection}: {system!r} and {reference!r} were not both measured by {measure} on the same queries"
                )
    return values


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
    values = [_comparable(both, both[0].system, [measure]) for both in found]
    tests = correct(
        [paired_t_test(v[a.system][measure], v[b.system][measure]) for v, (a, b) in zip(values, found, strict=True)], correction
    )
    return [
        Comparison(
            a.system,
            b.system,
            a.collection,
            measure,
            len(a.queries),
            a.means[measure] - b.means[measure],
            difference_interval(v[a.system][measure], v[b.system][measure]),
            p,
        )
        for (a, b), v, p in zip(found, values, tests, strict=True)
    ]


def _both(records: Sequence[Record], names: tuple[str, str], collection: str) -> tuple[Record, Record] | None:
    by_system = {record.system: record for record in records if record.collection == collection}
    return (by_system[names[0]], by_system[names[1]]) if set(names) <= by_system.keys() else None


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
