"""Figures of selection by hand, and weights against a search of all."""

from itertools import product

import numpy as np
import pytest

from keyblock.selectors import SELECTORS
from training.data.collection import Collection
from training.data.examples import Preparation
from training.evaluate.selection import Judged, figures, judge, learned_weights


def one(right: int, *scores: list[float], overlap: float = 0.5) -> Judged:
    return Judged(np.arange(len(scores[0])) == right, np.asarray(scores, dtype=np.float64), overlap)


def test_a_right_block_among_the_best_three_counts() -> None:
    judged = [one(3, [5, 4, 3, 2], overlap=0.1), *(one(2, [5, 4, 3, 2], overlap=0.9) for _ in range(19))]
    assert figures(judged, np.ones(1)) == (20, 0.95, 0.5), "of two with the least overlap, one"
    assert figures(judged, -np.ones(1)).of_all == 1


def test_ties_fall_to_the_earlier_block() -> None:
    assert figures([one(2, [1, 1, 1, 1])], np.ones(1)).of_all == 1
    assert figures([one(3, [1, 1, 1, 1])], np.ones(1)).of_all == 0


def test_nothing_to_measure() -> None:
    with pytest.raises(ValueError, match="no query has a gold passage"):
        figures([], np.ones(1))


def test_selectors_score_what_can_be_judged(toy: Collection, toy_pipeline: object) -> None:
    preparation = Preparation(toy, toy_pipeline)  # type: ignore[arg-type]
    selectors = [SELECTORS.create({"name": name}) for name in ("bm25", "first")]
    judged = judge(preparation, ["river?", "river!", "stone?"], selectors)
    assert [len(group.right) for group in judged] == [preparation.document(f"{topic}-3").n_blocks for topic in ("river", "stone")]
    np.testing.assert_array_equal(judged[0].scores[1], -np.arange(len(judged[0].right)))
    assert figures(judged, np.asarray([1.0, 0.0])).of_all == 1, "only the gold block has the topic's word"


def test_weights_make_right_blocks_most_likely() -> None:
    """No other weights of a grid make them more likely; one that says the opposite gets none."""
    rng = np.random.default_rng(5)
    groups = []
    for _ in range(60):
        right = rng.integers(6)
        signal = rng.normal(size=6) + 1.5 * (np.arange(6) == right)
        weak = rng.normal(size=6) + 0.5 * (np.arange(6) == right)
        wrong = rng.normal(size=6) - 0.5 * (np.arange(6) == right)
        groups.append(one(int(right), signal.tolist(), weak.tolist(), wrong.tolist()))
    judged = {"all": groups}

    def loss(weights: tuple[float, ...]) -> float:
        likely = [np.exp(np.asarray(weights) @ g.scores) for g in groups]
        return -float(np.mean([np.log(x[g.right].sum() / x.sum()) for x, g in zip(likely, groups, strict=True)]))

    weights = learned_weights(judged)
    assert weights[2] == 0
    assert weights[0] > weights[1] > 0
    grid = np.arange(0, 3, 0.25)
    assert loss(tuple(weights)) <= min(loss((a, b, c)) for a, b, c in product(grid, grid, (0, 0.5)))
