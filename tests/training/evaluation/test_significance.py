"""Paired t-tests on numbers worked by hand; Student's distribution has closed forms for 1 and 3 degrees of freedom."""

import math
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from training.evaluate.significance import (
    bonferroni,
    correct,
    corrected_tests,
    holm,
    p_text,
    paired_t_test,
)
from training.evaluate.tables import table

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


def test_holm_by_hand() -> None:
    """Sorted .005, .01, .03, .04 times 4, 3, 2, 1 are .02, .03, .06, .04; the last may not fall below the one before it."""
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]


def closed_testing(p_values: list[float]) -> list[float]:
    """Holm's correction as it is derived: the largest Bonferroni p-value of all the subsets that hold the hypothesis."""
    every = range(len(p_values))
    subsets = [subset for size in range(1, len(p_values) + 1) for subset in combinations(every, size)]
    return [max(min(1.0, len(s) * min(p_values[j] for j in s)) for s in subsets if i in s) for i in every]


@given(P_VALUES)
def test_holm_is_the_closed_test_and_never_above_bonferroni(p_values: list[float]) -> None:
    corrected = holm(p_values)
    assert corrected == pytest.approx(closed_testing(p_values))
    assert all(p <= c <= b for p, c, b in zip(p_values, corrected, bonferroni(p_values), strict=True))


def test_a_family_by_hand() -> None:
    """A t of 3 with one degree of freedom for `half`, and no difference for `same`: Holm doubles the smaller p only."""
    reference = {"a": 1.0, "b": 0.5}
    systems = {"half": {"a": 2.0, "b": 1.0}, "same": dict(reference)}
    p = 1 - 2 / math.pi * math.atan(3)
    assert corrected_tests(systems, reference) == {"half": pytest.approx(2 * p), "same": 1.0}
    assert corrected_tests(systems, reference, "none") == {"half": pytest.approx(p), "same": 1.0}
    assert corrected_tests({"half": {"a": 2.0}}, {"a": 1.0}) == {}


def test_an_unknown_correction() -> None:
    with pytest.raises(ValueError, match="unknown correction 'best'; there are holm, bonferroni, none"):
        correct([0.1], "best")


def test_p_values_as_printed() -> None:
    assert [p_text(p) for p in (1.0, 0.0512, 1.9e-48, 0.0)] == ["1", "0.051", "1.9e-48", "< 1e-300"]


P = 1 - 2 / math.pi * math.atan(3)
GOOD, BAD = {"a": 1.0, "b": 0.5}, {"a": 0.0, "b": 0.0}


@pytest.mark.parametrize(("correction", "times"), [("holm", 2), ("bonferroni", 2), ("none", 1)])
def test_the_table_by_hand(correction: str, times: int) -> None:
    systems = {"new": {"RR@10": GOOD}, "old": {"RR@10": BAD}, "same": {"RR@10": GOOD}}
    assert table(systems, "new", correction).splitlines() == [
        "| system | RR@10 | p |",
        "| --- | --- | --- |",
        "| new | 0.7500 |  |",
        f"| old | 0.0000 | {times * P:.2g} |",
        "| same | 0.7500 | 1 |",
    ]


def test_a_table_of_one_query_has_no_p_values() -> None:
    systems = {"new": {"RR@10": {"a": 1.0}}, "old": {"RR@10": {"a": 0.5}}}
    assert table(systems, "new").splitlines()[-1] == "| old | 0.5000 |  |"
