"""Measures by hand, and what counts as zero."""

import math

import pytest
from ir_measures import RR, P, nDCG

from training.evaluate.measures import DEFAULT_MEASURES, REPORTED, means, parse_measures, per_query

QRELS = {"q1": {"a": 1, "b": 0, "c": 2}, "q2": {"d": 1}, "q3": {"e": 1}}


def run(**ranked: str) -> dict[str, dict[str, float]]:
    """Documents of one letter, best first, with falling scores."""
    return {query: {document: 10.0 - rank for rank, document in enumerate(documents)} for query, documents in ranked.items()}


def test_reciprocal_rank_by_hand() -> None:
    values = per_query(QRELS, run(q1="bxa", q2="d", q3="xyzuvwnmope"), ["q1", "q2", "q3"])
    assert values["RR@10"] == {"q1": pytest.approx(1 / 3), "q2": 1.0, "q3": 0.0}  # q3's stands at 11


def test_ndcg_by_hand() -> None:
    """Gains are the grades, discounted by log2(rank + 1): a at 1 and c at 3, against c at 1 and a at 2."""
    values = per_query(QRELS, run(q1="abc"), ["q1"])
    assert values["nDCG@10"]["q1"] == pytest.approx((1 + 2 / math.log2(4)) / (2 + 1 / math.log2(3)))


def test_a_query_missing_from_the_run_counts_as_zero_and_in_the_mean() -> None:
    values = per_query(QRELS, run(q2="d"), ["q1", "q2"])
    assert values["RR@10"] == {"q1": 0.0, "q2": 1.0}
    assert means(values) == {"RR@10": 0.5, "nDCG@10": 0.5}
    assert per_query(QRELS, {}, ["q1"]) == per_query(QRELS, {"q1": {}}, ["q1"]) == {"RR@10": {"q1": 0.0}, "nDCG@10": {"q1": 0.0}}


def test_queries_that_are_not_requested_are_left_out() -> None:
    assert per_query(QRELS, run(q1="a", q2="d"), ["q2"])["RR@10"] == {"q2": 1.0}


def test_a_query_without_judgements_counts_as_zero() -> None:
    assert per_query(QRELS, run(q9="a", q2="d"), ["q9", "q2"])["nDCG@10"] == {"q9": 0.0, "q2": 1.0}
    assert per_query({}, run(q9="a"), ["q9"])["nDCG@10"] == {"q9": 0.0}


@pytest.mark.parametrize("order", [["a", "x", "y"], ["x", "a", "y"], ["y", "x", "a"]])
def test_ties_keep_the_order_of_the_run(order: list[str]) -> None:
    values = per_query(QRELS, {"q1": dict.fromkeys(order, 1.0)}, ["q1"])
    assert values["RR@10"]["q1"] == pytest.approx(1 / (order.index("a") + 1))


def test_any_measure_of_ir_measures() -> None:
    assert parse_measures(["MRR@10", "nDCG@10", "P@1"]) == [RR @ 10, nDCG @ 10, P @ 1]
    assert per_query(QRELS, run(q1="ab"), ["q1"], parse_measures(["P@2", "AP(rel=2)"])) == {
        "P@2": {"q1": 0.5},
        "AP(rel=2)": {"q1": 0.0},
    }


@pytest.mark.parametrize("name", ["best", "RR@", "RR@-1", "nDCG@0", "nDCG@-1", "INST", "alpha_nDCG@10", ""])
def test_measures_that_cannot_be_computed(name: str) -> None:
    with pytest.raises(ValueError, match=f"measure '{name}' cannot be computed"):
        parse_measures(["RR@10", name])


def test_sets_of_measures_have_names() -> None:
    assert parse_measures(["reported"]) == list(REPORTED)
    assert parse_measures(["default", "P@1", "nDCG@10"]) == [*DEFAULT_MEASURES, P @ 1]
