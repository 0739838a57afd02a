"""Fusions by hand, against slow versions, and what a call may say of the first stage."""

import pickle
from statistics import fmean, pstdev
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.fusion import (
    FIRST_STAGE_FUSIONS,
    NOT_SENT,
    FirstStage,
    FirstStageError,
    Linear,
    MapFuse,
    ReciprocalRank,
    ranks,
    z_scores,
)

LOGITS = np.asarray([0.0, 2.0, 1.0])  # ranks 3, 1 and 2
FIRST = np.asarray([30.0, 20.0, 10.0])  # ranks 1, 2 and 3
FUSIONS = [FIRST_STAGE_FUSIONS.create(name) for name in FIRST_STAGE_FUSIONS.names()]
SCORES = st.floats(-100, 100).map(lambda score: round(score, 1))
PAIRS = st.lists(st.tuples(SCORES, SCORES), min_size=1, max_size=30)


def test_mapfuse_worked_example() -> None:
    """.3 / 1 + .6 / 3, .3 / 2 + .6 / 1 and .3 / 3 + .6 / 2."""
    fused = MapFuse(first_stage_map=0.3, model_map=0.6).fuse(LOGITS, FIRST)
    assert fused.tolist() == pytest.approx([0.5, 0.75, 0.4])


def test_reciprocal_rank_worked_example() -> None:
    """1 / 61 + 1 / 63, 1 / 62 + 1 / 61 and 1 / 63 + 1 / 62; then 2 / 2 + 1 / 4, 2 / 3 + 1 / 2 and 2 / 4 + 1 / 3."""
    assert ReciprocalRank().fuse(LOGITS, FIRST).tolist() == pytest.approx([0.032266, 0.032522, 0.032002], abs=1e-6)
    weighed = ReciprocalRank(k=1, first_stage_weight=2).fuse(LOGITS, FIRST)
    assert weighed.tolist() == pytest.approx([1.25, 1.166667, 0.833333], abs=1e-6)


def test_linear_worked_example() -> None:
    """The z-scores are -1.2247, 1.2247, 0 and 1.2247, 0, -1.2247: a quarter of the one and three of the other."""
    assert Linear(weight=0.25).fuse(LOGITS, FIRST).tolist() == pytest.approx([-0.612372, 0.918559, -0.306186], abs=1e-6)
    assert Linear(weight=0).fuse(LOGITS, FIRST).tolist() == pytest.approx(z_scores(LOGITS).tolist())


@given(st.lists(SCORES, min_size=2, max_size=2, unique=True), st.lists(SCORES, min_size=2, max_size=2, unique=True))
def test_two_documents_in_opposite_orders_tie(logits: list[float], first: list[float]) -> None:
    fused = Linear().fuse(np.sort(logits), -np.sort(first))
    assert fused.tolist() == [0, 0]


def test_equal_scores_share_the_better_rank() -> None:
    assert ranks(np.asarray([5.0, 7.0, 5.0, 1.0])).tolist() == [2, 1, 2, 4]


@given(PAIRS)
def test_against_slow_versions(pairs: list[tuple[float, float]]) -> None:
    logits, first = (list(column) for column in zip(*pairs, strict=True))

    def rank(scores: list[float], number: int) -> int:
        return 1 + sum(score > scores[number] for score in scores)

    def z(scores: list[float], number: int) -> float:
        return (scores[number] - fmean(scores)) / pstdev(scores) if len(set(scores)) > 1 else 0.0

    numbers = range(len(pairs))
    expected = {
        MapFuse(first_stage_map=0.2, model_map=0.5): [0.2 / rank(first, n) + 0.5 / rank(logits, n) for n in numbers],
        Linear(weight=0.3): [0.3 * z(first, n) + 0.7 * z(logits, n) for n in numbers],
        ReciprocalRank(k=10): [1 / (10 + rank(first, n)) + 1 / (10 + rank(logits, n)) for n in numbers],
    }
    for fusion, scores in expected.items():
        assert fusion.fuse(np.asarray(logits), np.asarray(first)).tolist() == pytest.approx(scores, abs=1e-6)


@pytest.mark.parametrize("fusion", FUSIONS, ids=FIRST_STAGE_FUSIONS.names())
def test_what_cannot_be_fused_is_refused(fusion: Any) -> None:
    for wrong in (np.nan, np.inf, -np.inf):
        for pair in ((LOGITS, [1, wrong, 2]), ([1, wrong, 2], FIRST)):
            with pytest.raises(ValueError, match="finite"):
                fusion.fuse(*map(np.asarray, pair))
    with pytest.raises(ValueError, match=r"\(3,\) and \(2,\)"):
        fusion.fuse(LOGITS, FIRST[:2])
    assert fusion.fuse(np.zeros(0), np.zeros(0)).shape == (0,)


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_scores_of_any_size_have_z_scores(scale: float) -> None:
    assert z_scores(FIRST * scale / 30).tolist() == pytest.approx([1.224745, 0, -1.224745])


BY_ORDER = MapFuse(first_stage="order", first_stage_map=0.3, model_map=0.5)
CALLS: dict[str, Any] = {
    "no fusion anywhere": ([1, 2], None, None, None, None),
    "the bundle's where scores are sent": ([1, 2], None, Linear(weight=0.2), Linear(weight=0.2), [1, 2]),
    "the call's in place of the bundle's": ([1, 2], "mapfuse", Linear(weight=0.2), MapFuse(), [1, 2]),
    "the bundle's parameters where the call leaves them out": (
        None,
        {"name": "mapfuse", "first_stage": "order", "model_map": 0.5},
        MapFuse(first_stage_map=0.3),
        BY_ORDER,
        [2, 1],
    ),
    "an order although there are scores": (
        [1, 5],
        {"name": "linear", "first_stage": "order"},
        None,
        Linear(first_stage="order"),
        [2, 1],
    ),
}


@pytest.mark.parametrize(("scores", "asked", "own", "fusion", "evidence"), CALLS.values(), ids=CALLS)
def test_what_a_call_means(scores: Any, asked: Any, own: Any, fusion: Any, evidence: list[float] | None) -> None:
    sent = FirstStage.read(scores, asked, 2)
    found = sent.fusion(own and own.describe())
    assert found == fusion
    assert found is None or sent.evidence(found, 2).tolist() == evidence


def test_a_call_that_says_nothing_leaves_the_order_to_the_model() -> None:
    assert NOT_SENT.fusion(Linear().describe()) is None


@pytest.mark.parametrize(
    ("scores", "fusion", "said"),
    [
        ([1.0, 2.0], None, "first_stage_scores: has 2 scores for 3 documents: send one for each"),
        ([1.0, float("nan"), 2.0], None, "first_stage_scores: must be finite numbers: that of document 1 is nan"),
        (["1", "2", "3"], None, "first_stage_scores: must be a list of numbers, one for each document"),
        ([True, False, True], None, "first_stage_scores: must be a list of numbers, one for each document"),
        ([1, [2], 3], None, "first_stage_scores: must be a list of numbers, one for each document"),
        ([1, None, 10**400], None, "first_stage_scores: must be a list of numbers, one for each document"),
        ("123", None, "first_stage_scores: must be a list of numbers, one for each document"),
        (None, "linear", "fusion: needs first_stage_scores, which are not there"),
        ([1, 2, 3], "sum", "fusion: unknown fusion with the first stage 'sum'; known: linear, mapfuse, reciprocal_rank"),
        ([1, 2, 3], 5, "fusion: must be a name or a mapping, {name, ...}, not 5"),
        ([1, 2, 3], ["linear"], "fusion: must be a name or a mapping, {name, ...}, not ['linear']"),
        ([1, 2, 3], {"name": "linear", "weight": 2}, "fusion: linear: weight: Input should be less than or equal to 1"),
        ([1, 2, 3], {"name": "linear", "weight": "0.5"}, "fusion: linear: weight: Input should be a valid number"),
        ([1, 2, 3], {"name": "mapfuse", "k": 3}, "its parameters are: first_stage, first_stage_map, model_map"),
    ],
)
def test_an_invalid_call_is_one_line(scores: Any, fusion: Any, said: str) -> None:
    with pytest.raises(FirstStageError) as caught:
        FirstStage.read(scores, fusion, 3)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(caught.value.field)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
