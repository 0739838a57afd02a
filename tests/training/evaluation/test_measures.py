"""Measures by hand, what counts as zero, and paired t-tests.

Student's distribution has closed forms for 1 and 3 degrees of freedom.
"""

import math
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from ir_measures import RR, P, nDCG

from training.evaluate.measures import DEFAULT_MEASURES, REPORTED, means, parse_measures, per_query
from training.evaluate.significance import (
    bonferroni,
    corrected_tests,
    holm,
    p_text,
    paired_t_test,
)
from training.evaluate.tables import table

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


def test_other_queries_are_left_out_and_one_without_judgements_counts_as_zero() -> None:
    assert per_query(QRELS, run(q1="a", q2="d"), ["q2"])["RR@10"] == {"q2": 1.0}
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


P_VALUES = st.lists(st.floats(0, 1), max_size=6)
VALUES = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 1), min_size=2)


def test_by_hand_with_3_degrees_of_freedom() -> None:
    """Differences 0.1, 0.3, -0.1, 0.5: mean 0.2, variance 0.2 / 3, t = 0.2 / sqrt(0.2 / 3 / 4)."""
    first = {"a": 0.5, "b": 0.9, "c": 0.2, "d": 1.0}
    second = {"a": 0.4, "b": 0.6, "c": 0.3, "d": 0.5}
    t = 0.2 / math.sqrt(0.2 / 3 / 4)
    below = 0.5 + ((t / math.sqrt(3)) / (1 + t * t / 3) + math.atan(t / math.sqrt(3))) / math.pi
    assert paired_t_test(first, second) == pytest.approx(2 * (1 - below))


def test_queries_are_paired_by_name_and_missing_ones_count_as_zero() -> None:
    first, second = {"a": 1.0, "b": 0.5, "c": 0.25}, {"c": 0.5, "a": 0.5, "x": 9.0}
    assert paired_t_test(first, second) == paired_t_test(first, {"a": 0.5, "b": 0.0, "c": 0.5})


def test_identical_systems() -> None:
    values = {"a": 0.3, "b": 0.7}
    assert paired_t_test(values, dict(values)) == 1.0
    assert paired_t_test({"a": 0.0, "b": 0.0}, {}) == 1.0


def test_the_same_difference_on_every_query_is_no_luck_and_no_warning() -> None:
    assert paired_t_test({"a": 1.0, "b": 1.0, "c": 1.0}, {}) == 0.0
    assert paired_t_test({"a": 0.5, "b": 0.75}, {"a": 0.25, "b": 0.5}) == 0.0


@given(VALUES, VALUES)
@example({"a": 0.0, "b": 0.0}, {"a": 0.0, "b": 5e-324})
def test_a_p_value_it_is_whichever_comes_first(first: dict[str, float], second: dict[str, float]) -> None:
    both = dict.fromkeys(first, 0.0) | {q: v for q, v in second.items() if q in first}
    p = paired_t_test(first, both)
    assert 0 <= p <= 1
    assert paired_t_test(both, first) == pytest.approx(p)


@pytest.mark.parametrize("queries", [{}, {"a": 1.0}])
def test_too_few_queries(queries: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=f"at least two queries, not {len(queries)}"):
        paired_t_test(queries, queries)


def closed_testing(p_values: list[float]) -> list[float]:
    """Holm's correction as it is derived: the largest Bonferroni p-value of all the subsets that hold the hypothesis."""
    every = range(len(p_values))
    subsets = [subset for size in range(1, len(p_values) + 1) for subset in combinations(every, size)]
    return [max(min(1.0, len(s) * min(p_values[j] for j in s)) for s in subsets if i in s) for i in every]


@given(P_VALUES)
@example([0.01, 0.04, 0.03, 0.005])
def test_holm_is_the_closed_test_and_never_above_bonferroni(p_values: list[float]) -> None:
    corrected = holm(p_values)
    assert corrected == pytest.approx(closed_testing(p_values))
    assert all(p <= c <= b for p, c, b in zip(p_values, corrected, bonferroni(p_values), strict=True))


def test_p_values_as_printed() -> None:
    assert [p_text(p) for p in (1.0, 0.0512, 1.9e-48, 0.0)] == ["1", "0.051", "1.9e-48", "< 1e-300"]


@pytest.mark.parametrize(("correction", "times"), [("holm", 2), ("bonferroni", 2), ("none", 1)])
def test_the_table_by_hand(correction: str, times: int) -> None:
    """A t of 3 with one degree of freedom for `old`, and no difference for `same`; a single query has no p-value."""
    p = times * (1 - 2 / math.pi * math.atan(3))
    reference, old = {"a": 1.0, "b": 0.5}, {"a": 0.0, "b": 0.0}
    systems = {"new": {"RR@10": reference}, "old": {"RR@10": old}, "same": {"RR@10": reference}, "one": {"RR@10": {"a": 0.5}}}
    assert table(systems, "new", correction).splitlines() == [
        "| system | RR@10 | p |",
        "| --- | --- | --- |",
        "| new | 0.7500 |  |",
        f"| old | 0.0000 | {p:.2g} |",
        "| same | 0.7500 | 1 |",
        "| one | 0.5000 |  |",
    ]
    assert corrected_tests({"old": old, "same": dict(reference)}, reference, correction) == {"old": pytest.approx(p), "same": 1.0}
