"""The pre-ranking's rule: a worked example, a slow version beside the fast one, and what is never skipped."""

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from keyblock.pre_ranking import PRIOR_FEATURES, PreRanking, Prior, in_turns

PRIORS = st.lists(st.integers(-5, 5).map(float), max_size=40)


def skipped(prior: list[float], results: int = 10, **rule: Any) -> list[int]:
    """Numbers of the documents that the model does not read."""
    return np.flatnonzero(PreRanking(**rule).below_the_bar(np.asarray(prior), results)).tolist()


def test_worked_example() -> None:
    """Half of six documents are read: those that promise 9, 8 and 5, both of these; then those within a margin of a result."""
    prior = [5.0, 1.0, 9.0, 4.0, 8.0, 5.0]
    rule = {"share": 0.5, "per_result": 1.0, "least": 1}
    assert skipped(prior, 1, **rule) == [1, 3]
    assert skipped(prior, 1, **rule, margin=4.0) == [1, 3], "9 - 4 is 5"
    assert skipped(prior, 1, **rule, margin=5.0) == [1]
    assert skipped(prior, 2, **rule, margin=7.0) == [], "8 - 7 is 1"


def test_more_results_and_small_requests_are_read_further() -> None:
    prior = np.arange(100.0)[::-1].tolist()
    assert skipped(prior, share=0.2) == list(range(20, 100))
    assert skipped(prior, 15, share=0.2) == list(range(30, 100)), "two for each result"
    assert skipped(prior, 50, share=0.2) == skipped(prior, int(1e308), share=0.2) == []
    assert skipped(prior, share=0.2, least=40) == list(range(40, 100))
    assert skipped(prior[:20], share=0.01) == [], "a request of 20 is not cut"
    assert skipped([*prior[:20], 0.0], share=0.01) == [20]


@given(PRIORS, st.floats(0.01, 1), st.integers(1, 12), st.integers(1, 12), st.sampled_from([0.0, 1.0, 2.5]))
def test_a_document_is_skipped_where_enough_others_promise_more(
    prior: list[float], share: float, results: int, least: int, margin: float
) -> None:
    """Beside a slow, obvious version: so many promise more, or as much and nobody less, and each result by the margin."""
    read = max(np.ceil(share * len(prior)), 1.5 * results, least)
    expected = [
        number
        for number, own in enumerate(prior)
        if sum(other > own for other in prior) + (prior[:number].count(own) if own == min(prior) else 0) >= read
        and sum(other - margin > own for other in prior) >= results
    ]
    assert skipped(prior, results, share=share, per_result=1.5, least=least, margin=margin) == expected


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), max_size=20))
def test_in_turns_nobody_waits_for_more_than_the_other_promise(promised: list[tuple[int, int]]) -> None:
    """The first n by either prior score are among the first 2n; of equals the earlier one comes first, and one alone is its own."""
    first, second = np.asarray(promised, dtype=np.float64).reshape(-1, 2).T
    order, orders = in_turns(first, second).tolist(), [in_turns(one).tolist() for one in (first, second)]
    assert orders == [sorted(range(len(one)), key=lambda number: (-one[number], number)) for one in (first, second)]
    assert sorted(order) == list(range(len(promised)))
    for count in range(len(promised) + 1):
        assert set(orders[0][:count]) | set(orders[1][:count]) <= set(order[: 2 * count])
    assert order[:1] == orders[0][:1]


def test_a_prior_score_is_a_weighted_sum() -> None:
    """2 of the best block less half of what is covered."""
    prior = Prior(best_block=2.0, coverage=-0.5)
    assert prior.of(np.asarray([[3.0, 9.0, 0.4, 1.0, 7.0], [0.0, 1.0, 1.0, 0.0, 0.0]])).tolist() == [5.8, -0.5]
    assert Prior.from_weights(prior.weights) == prior
    assert tuple(Prior.model_fields) == PRIOR_FEATURES
