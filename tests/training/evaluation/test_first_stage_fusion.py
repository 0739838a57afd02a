"""Runs fused with the first stage's, and what held-out queries teach."""

import pytest

from keyblock.fusion import FIRST_STAGE_FUSIONS, Linear, MapFuse, ReciprocalRank
from training.evaluate.calibration.first_stage import LEARNERS, HeldOut, fuse_runs, learn

NONE = float("-inf")
FIRST = {"q": {"a": 9.0, "b": 8.0, "c": 7.0}}
MODEL = {"q": {"b": 3.0, "c": 2.0, "a": 1.0}}


def held_out(relevant: str) -> HeldOut:
    return HeldOut({"q": {relevant: 1}}, FIRST, MODEL)


def test_worked_example() -> None:
    """.3 / 2 + .6 / 1 for b, .3 / 1 + .6 / 3 for a, .3 / 3 + .6 / 2 for c."""
    fused = fuse_runs(MapFuse(first_stage_map=0.3, model_map=0.6), FIRST, MODEL)["q"]
    assert list(fused) == ["b", "a", "c"]
    assert list(fused.values()) == pytest.approx([0.75, 0.5, 0.4])


def test_documents_without_text_stay_last_and_equals_in_the_models_order() -> None:
    """Of a and b each is first for one system and second for the other: of those that the model has scored."""
    model = {"q": {"b": 3.0, "a": 1.0, "c": NONE}}
    assert list(fuse_runs(ReciprocalRank(), {"q": {"c": 9.5, **FIRST["q"]}}, model)["q"].items())[2] == ("c", NONE)
    assert list(fuse_runs(ReciprocalRank(), FIRST, model)["q"]) == ["b", "a", "c"]


def test_the_order_alone_is_fused_where_that_is_meant() -> None:
    """By their scores b and c are far behind a; by the order they are 3, 2, 1, which is the z-scores 1.22, 0, -1.22."""
    first = {"q": {"a": 100.0, "b": 1.0, "c": 0.0}}
    fused = fuse_runs(Linear(first_stage="order", weight=1.0), first, MODEL)["q"]
    assert list(fused.values()) == pytest.approx([1.224745, 0, -1.224745])


def test_documents_that_the_first_stage_lacks_are_refused() -> None:
    with pytest.raises(ValueError, match="has no document c for query q"):
        fuse_runs(MapFuse(), {"q": {"a": 1.0, "b": 2.0}}, MODEL)


def test_average_precisions_are_learned_and_each_collection_counts_the_same() -> None:
    """Where a is the relevant one, the precisions are 1 and 1 / 3, where b is, 1 / 2 and 1."""
    assert learn("mapfuse", [held_out("a")]) == MapFuse(first_stage_map=1.0, model_map=1 / 3)
    learned = learn("mapfuse", [held_out("a"), held_out("b")])
    assert learned.model_dump() == pytest.approx({"first_stage": "scores", "first_stage_map": 3 / 4, "model_map": 2 / 3})


def test_the_smallest_of_the_best_weights_is_learned() -> None:
    """By hand: a overtakes b where w * 1.2247 - (1 - w) * 1.2247 > (1 - w) * 1.2247, so from 2 / 3 on: .7 is the first tried."""
    assert learn("linear", [held_out("a")]) == Linear(weight=0.7)
    assert learn("linear", [held_out("b")]) == Linear(weight=0.0)


def test_what_has_nothing_to_learn_is_as_it_comes() -> None:
    assert learn("reciprocal_rank", []) == ReciprocalRank()
    assert LEARNERS.keys() < set(FIRST_STAGE_FUSIONS.names())
    with pytest.raises(ValueError, match="unknown fusion with the first stage 'sum'"):
        learn("sum", [])
