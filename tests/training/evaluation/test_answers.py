"""Thresholds and errors, on cases worked by hand."""

from pathlib import Path

import numpy as np
import pytest

from keyblock.fusion import FEATURES, Fusion, sigmoid
from training.data.collection import Collection
from training.evaluate.calibration.fit import (
    DevScores,
    Tops,
    at_threshold,
    auroc,
    best_threshold,
    calibration_gap,
    threshold_interval,
    top_gap,
    top_scores,
)


def tops(answered: list[float], unanswered: list[float], right: list[bool] | None = None) -> Tops:
    return Tops(np.asarray(answered), np.asarray(unanswered), np.asarray(right or [True] * len(answered)))


def test_each_query_is_seen_with_its_answer_and_without(toy_path: Path) -> None:
    """river-3 answers river?; it is the best, and without it river-0 is. For stone? another one is placed above stone-3."""
    features = np.zeros((3, len(FEATURES)))
    features[:, 0] = [2.0, -1.0, -3.0]
    documents = {"river?": ["river-3", "river-0", "stone-1"], "stone?": ["stone-0", "stone-3", "river-2"]}
    scores = DevScores(Collection(toy_path), dict.fromkeys(documents, features), documents)
    found = top_scores(scores, Fusion())
    assert found.answered == pytest.approx(sigmoid(np.asarray([2.0, 2.0])))
    assert found.unanswered == pytest.approx(sigmoid(np.asarray([-1.0, 2.0])))
    assert found.right.tolist() == [True, False]


def test_the_area_under_the_curve_is_the_share_of_pairs_in_order() -> None:
    above, below = np.asarray([0.9, 0.4, 0.4]), np.asarray([0.4, 0.1])
    pairs = [1.0 if a > b else 0.5 if a == b else 0.0 for a in above for b in below]
    assert auroc(above, below) == pytest.approx(np.mean(pairs))


def test_the_threshold_lets_the_answered_through_and_stops_the_others() -> None:
    """By hand: at .5 three of four answered pass and one of four unanswered: precision 3/4, recall 3/4, refused 3/4."""
    found = best_threshold([tops([0.9, 0.8, 0.7, 0.3], [0.6, 0.2, 0.2, 0.1])])
    assert found.recall + found.refused == pytest.approx(1.75)  # just under .3: all four pass, and one of the others
    one = at_threshold([tops([0.9, 0.8, 0.7, 0.3], [0.6, 0.2, 0.2, 0.1])], 0.5)
    assert (one.precision, one.recall, one.refused) == pytest.approx((0.75, 0.75, 0.75))


def test_collections_count_the_same_whatever_their_sizes() -> None:
    large, small = tops([0.9] * 100, [0.8] * 100), tops([0.3], [0.1])
    assert at_threshold([large, small], 0.85)[1:] == pytest.approx((1.0, 0.5, 1.0))


def test_the_calibration_error_of_a_case_by_hand() -> None:
    """Bin .1 to .2: scores .1 and .2 short of it, one of two is relevant: gap .35; bin .9: one, relevant: gap .05."""
    scores, labels = np.asarray([0.1, 0.19999, 0.95]), np.asarray([0.0, 1.0, 1.0])
    assert calibration_gap(scores, labels) == pytest.approx((0.35 * 2 + 0.05) / 3, abs=1e-4)
    assert top_gap(tops([0.95], [0.05])) == pytest.approx(0.05)
    assert top_gap(tops([0.95], [0.95])) == pytest.approx(0.45)


def test_few_queries_leave_the_threshold_open_and_many_settle_it() -> None:
    """Answered ones score .6 to .9 and the others .1 to .4: any value between them is as good."""
    rng = np.random.default_rng(0)
    few, many = (threshold_interval([tops(rng.uniform(0.6, 0.9, n).tolist(), rng.uniform(0.1, 0.4, n).tolist())]) for n in (8, 400))
    assert 0.4 < many[0] <= many[1] < 0.6
    assert few[1] - few[0] > 2 * (many[1] - many[0])
