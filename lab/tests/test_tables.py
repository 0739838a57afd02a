"""Tables worked by hand: a difference of 1 and 0.5 in two queries is t = 3 with one degree of freedom."""

import math
from typing import Any

import pytest

from lab.records import Record
from lab.tables import compare_pairs, comparisons_table, difference_interval, systems_table

P = 1 - 2 / math.pi * math.atan(3)
GOOD, BAD = {"a": 1.0, "b": 0.5}, {"a": 0.0, "b": 0.0}


def make(system: str, collection: str = "toy", values: dict[str, float] = GOOD, **costs: Any) -> Record:
    measured = {measure: list(values.values()) for measure in ("RR@10", "nDCG@10")}
    return Record(system=system, collection=collection, split="test", queries=list(values), values=measured, **costs)


def test_the_table_of_systems_by_hand() -> None:
    """p-values of a collection are a family: two others on toy double the smaller p, the only other on sea keeps its own."""
    records = [
        make("BM25", values=BAD),
        make("KeyB", steps=1700, training_seconds=600.0, ms_per_document=1.234, peak_mb=812.4),
        make("KeyB", "sea"),
        make("same"),
        make("BM25", "sea", BAD),
    ]
    assert systems_table(records, "KeyB", ["RR@10"]).splitlines() == [
        "| collection | system | RR@10 | p | ms a document | peak MB | steps | training, minutes |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
        f"| toy | BM25 | 0.0000 | {2 * P:.2g} |  |  |  |  |",
        "| toy | **KeyB** | 0.7500 |  | 1.23 | 812 | 1,700 | 10 |",
        "| toy | same | 0.7500 | 1 |  |  |  |  |",
        "| sea | **KeyB** | 0.7500 |  |  |  |  |  |",
        f"| sea | BM25 | 0.0000 | {P:.2g} |  |  |  |  |",
    ]


def test_queries_are_paired_by_name_whatever_their_order() -> None:
    records = [make("KeyB"), make("same", values=dict(reversed(GOOD.items())))]
    assert (
        systems_table(records, "KeyB", ["RR@10", "nDCG@10"]).splitlines()[-1].startswith("| toy | same | 0.7500 | 1 | 0.7500 | 1 |")
    )


def test_seeds_are_a_column_where_there_are_any() -> None:
    head, _, *rows = systems_table([make("KeyB", seeds=3), make("BM25")], "KeyB", ["RR@10"]).splitlines()
    assert head.endswith("| seeds |")
    assert [row.split("|")[-2].strip() for row in rows] == ["3", "1"]


@pytest.mark.parametrize(
    ("records", "measure", "said"),
    [
        ([make("KeyB", "sea"), make("other")], "RR@10", "toy: the reference 'KeyB' was not measured there; measured were other"),
        (
            [make("KeyB"), make("other", values={"a": 1.0})],
            "RR@10",
            "'other' and 'KeyB' were not both measured by RR@10 on the same",
        ),
        ([make("KeyB"), make("other")], "AP", "were not both measured by AP"),
        ([make("KeyB"), make("KeyB")], "RR@10", "toy: two records of one system"),
    ],
)
def test_systems_that_cannot_be_compared(records: list[Record], measure: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        systems_table(records, "KeyB", [measure])


def test_claims_by_hand() -> None:
    """Two pairs, one of them on two collections: a family of three."""
    records = [make("BinB"), make("BM25", values=BAD), make("cascade"), make("BinB", "sea", BAD), make("BM25", "sea")]
    found = compare_pairs(records, [("BinB", "BM25"), ("cascade", "BinB")], "RR@10")
    assert [(c.first, c.second, c.collection, c.queries, c.difference, c.p) for c in found] == [
        ("BinB", "BM25", "toy", 2, 0.75, pytest.approx(3 * P)),
        ("BinB", "BM25", "sea", 2, -0.75, pytest.approx(3 * P)),
        ("cascade", "BinB", "toy", 2, 0.0, 1.0),
    ]
    # differences 0.5 and 1: a standard error of 0.25, and t of one degree of freedom is 12.706 at 97.5%
    assert comparisons_table(found).splitlines()[2:] == [
        f"| BinB | BM25 | toy | RR@10 | 2 | +0.7500 | -2.427 to +3.927 | {3 * P:.2g} | undecided |",
        f"| BinB | BM25 | sea | RR@10 | 2 | -0.7500 | -3.927 to +2.427 | {3 * P:.2g} | undecided |",
        "| cascade | BinB | toy | RR@10 | 2 | +0.0000 | +0.000 to +0.000 | 1 | undecided |",
    ]


def test_verdicts() -> None:
    """The same difference in three queries cannot be luck: p = 0."""
    better, worse = {"a": 1.0, "b": 1.0, "c": 1.0}, {"a": 0.0, "b": 0.0, "c": 0.0}
    records = [make("x", values=better), make("y", values=worse)]
    assert [c.verdict for c in compare_pairs(records, [("x", "y"), ("y", "x")], "RR@10")] == ["better", "worse"]


def test_pairs_that_were_not_measured_together() -> None:
    with pytest.raises(ValueError, match="'BinB' and 'BM25' were not both measured on any collection"):
        compare_pairs([make("BinB"), make("BM25", "sea")], [("BinB", "BM25")], "RR@10")


def test_the_interval_of_a_difference_by_hand() -> None:
    # differences 1, 2, 3: mean 2, standard error 1 / sqrt(3), and t of 2 degrees of freedom is 4.303 at 97.5%
    low, high = difference_interval({"a": 2.0, "b": 3.0, "c": 3.0}, {"a": 1.0, "b": 1.0})
    assert low == pytest.approx(2 - 4.302653 / 3**0.5, abs=1e-5)
    assert high == pytest.approx(2 + 4.302653 / 3**0.5, abs=1e-5)


def test_an_interval_needs_two_queries() -> None:
    with pytest.raises(ValueError, match="two queries"):
        difference_interval({"a": 1.0}, {"a": 0.0})
