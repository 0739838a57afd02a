"""The cascade's rule: a worked example, a slow version beside the fast one, and what is never spared."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from keyblock.bundle import load_bundle
from keyblock.cascade import PROMISING, Cascade, Promise, in_turns
from keyblock.description import PipelineConfig
from tests.conftest import ROOT

PROMISES = st.lists(st.integers(-5, 5).map(float), max_size=40)


def spared(promise: list[float], results: int = 10, **rule: Any) -> list[int]:
    """Numbers of the documents that the model does not read."""
    return np.flatnonzero(Cascade(**rule).below_the_bar(np.asarray(promise), results)).tolist()


def test_worked_example() -> None:
    """Half of six documents are read: those that promise 9, 8 and 5, both of these; then those within a margin of a result."""
    promise = [5.0, 1.0, 9.0, 4.0, 8.0, 5.0]
    rule = {"share": 0.5, "per_result": 1.0, "least": 1}
    assert spared(promise, 1, **rule) == [1, 3]
    assert spared(promise, 1, **rule, margin=4.0) == [1, 3], "9 - 4 is 5"
    assert spared(promise, 1, **rule, margin=5.0) == [1]
    assert spared(promise, 2, **rule, margin=7.0) == [], "8 - 7 is 1"


def test_more_results_and_small_requests_are_read_further() -> None:
    promise = np.arange(100.0)[::-1].tolist()
    assert spared(promise, share=0.2) == list(range(20, 100))
    assert spared(promise, 15, share=0.2) == list(range(30, 100)), "two for each result"
    assert spared(promise, 50, share=0.2) == []
    assert spared(promise, share=0.2, least=40) == list(range(40, 100))
    assert spared(promise[:20], share=0.01) == [], "a request of 20 is not cut"
    assert spared([*promise[:20], 0.0], share=0.01) == [20]


@given(PROMISES, st.floats(0.01, 1), st.integers(1, 12), st.integers(1, 12), st.sampled_from([0.0, 1.0, 2.5]))
def test_a_document_is_spared_where_enough_others_promise_more(
    promise: list[float], share: float, results: int, least: int, margin: float
) -> None:
    """Beside a slow, obvious version: so many promise more, or as much and nobody less, and each result by the margin."""
    read = max(np.ceil(share * len(promise)), 1.5 * results, least)
    expected = [
        number
        for number, own in enumerate(promise)
        if sum(other > own for other in promise) + (promise[:number].count(own) if own == min(promise) else 0) >= read
        and sum(other - margin > own for other in promise) >= results
    ]
    assert spared(promise, results, share=share, per_result=1.5, least=least, margin=margin) == expected


@given(PROMISES, st.integers(1, 12))
def test_copies_of_a_document_are_not_parted(promise: list[float], results: int) -> None:
    """However many there are: of what promises the same, all are read or none. Only the least of all may be parted."""
    rule = {"share": 0.3, "per_result": 1.0, "least": 1}
    out = spared(promise, results, **rule)
    parted = {promise[number] for number in out} & {own for number, own in enumerate(promise) if number not in out}
    assert parted <= {min(promise, default=0.0)}
    assert spared([3.0] * 5 + [1.0] * 94 + [0.0], 1, **rule) == [99]
    assert spared([3.0] * 5 + [1.0] * 95, 1, **rule) == list(range(30, 100)), "the least of all"


@given(st.lists(st.tuples(st.integers(-5, 5), st.integers(-5, 5)), max_size=20))
def test_in_turns_nobody_waits_for_more_than_the_other_promise(promised: list[tuple[int, int]]) -> None:
    """The first n by either promise are among the first 2n; of equals the earlier one comes first, and one promise is its own."""
    first, second = np.asarray(promised, dtype=np.float64).reshape(-1, 2).T
    order, orders = in_turns(first, second).tolist(), [in_turns(one).tolist() for one in (first, second)]
    assert orders == [sorted(range(len(one)), key=lambda number: (-one[number], number)) for one in (first, second)]
    assert sorted(order) == list(range(len(promised)))
    for count in range(len(promised) + 1):
        assert set(orders[0][:count]) | set(orders[1][:count]) <= set(order[: 2 * count])
    assert order[:1] == orders[0][:1]


def test_a_promise_is_a_weighted_sum() -> None:
    """2 of the best block less half of what is covered."""
    promise = Promise(best_block=2.0, coverage=-0.5)
    assert promise.of(np.asarray([[3.0, 9.0, 0.4, 1.0, 7.0], [0.0, 1.0, 1.0, 0.0, 0.0]])).tolist() == [5.8, -0.5]
    assert Promise.from_weights(promise.weights) == promise
    assert tuple(Promise.model_fields) == PROMISING


def test_the_embedded_rule() -> None:
    """As docs/explain/scores.md says: a quarter, at least 20, two for each result; the share is the default."""
    rule = load_bundle(ROOT / "models" / "default").manifest.pipeline.cascade
    assert rule is not None
    assert (rule.share, rule.per_result, rule.least) == (Cascade().share, Cascade().per_result, Cascade().least)
    assert [rule.reads(100, results) for results in (10, 12, 13, 30, 50)] == [25, 25, 26, 60, 100]
    assert rule.reads(20) == 20
    assert rule.promise is not None
    assert rule.promise.rare_here > 0


@given(PROMISES)
def test_without_a_bar_nothing_is_spared(promise: list[float]) -> None:
    assert spared(promise, 1, share=1.0, per_result=1.0, least=1) == []
    assert spared([1.0] * len(promise), 1, share=0.01, per_result=1.0, least=1) == [], "nothing tells them apart"


@pytest.mark.parametrize(
    ("parts", "why"),
    [
        ({"selector": {"name": "learned"}}, "selector 'learned' asks the model about every document: leave out cascade"),
        ({"cascade": {"share": 0}}, "cascade.share"),
        ({"cascade": {"depth": 3}}, "cascade.depth"),
        ({"cascade": {"promise": {"rank": 1.0}}}, "cascade.promise.rank"),
        ({"cascade": {"promise": {"nearness": float("nan")}}}, "cascade.promise.nearness"),
    ],
)
def test_what_a_cascade_does_not_fit(parts: dict[str, Any], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        PipelineConfig.model_validate({"cascade": {}} | parts)


def test_a_description_without_a_cascade_has_none() -> None:
    assert PipelineConfig().cascade is None
    described = PipelineConfig(cascade=Cascade(share=0.25)).model_dump()
    assert described["cascade"] == {"share": 0.25, "per_result": 2.0, "least": 20, "margin": 0.0, "promise": None}
    assert PipelineConfig.model_validate(described).cascade == Cascade(share=0.25)
