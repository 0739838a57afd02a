"""Paired t-tests on numbers worked by hand; Student's distribution has closed forms for 1 and 3 degrees of freedom."""

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from training.significance import paired_t_test

VALUES = st.dictionaries(st.sampled_from("abcdefgh"), st.floats(0, 1), min_size=2)


def test_by_hand_with_3_degrees_of_freedom() -> None:
    """Differences 0.1, 0.3, -0.1, 0.5: mean 0.2, variance 0.2 / 3, t = 0.2 / sqrt(0.2 / 3 / 4)."""
    first = {"a": 0.5, "b": 0.9, "c": 0.2, "d": 1.0}
    second = {"a": 0.4, "b": 0.6, "c": 0.3, "d": 0.5}
    t = 0.2 / math.sqrt(0.2 / 3 / 4)
    below = 0.5 + ((t / math.sqrt(3)) / (1 + t * t / 3) + math.atan(t / math.sqrt(3))) / math.pi
    assert paired_t_test(first, second) == pytest.approx(2 * (1 - below))


def test_by_hand_with_1_degree_of_freedom() -> None:
    """Differences 1 and 0.5: mean 0.75, variance 0.125, t = 3; the distribution is Cauchy's."""
    assert paired_t_test({"a": 1.0, "b": 0.5}, {"a": 0.0, "b": 0.0}) == pytest.approx(1 - 2 / math.pi * math.atan(3))


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
