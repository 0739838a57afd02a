"""Aggregation in parts against keyblock's own, all at once."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from keyblock.aggregation import AGGREGATORS, Combine, aggregate
from service.queue.job import Aggregation, padded_size, parts, shapes

COUNTS = st.lists(st.integers(0, 40), min_size=1, max_size=30).map(lambda counts: np.asarray(counts, dtype=np.intp))
CAP = st.sampled_from([1, 7, 64, 512])
HIDDEN = 3


def mean_state(states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """A combination that reads real passages alone, and cannot do without one."""
    assert mask[:, 0].all()
    return np.asarray((states.sum(axis=2) * mask).sum(axis=1) / mask.sum(axis=1), dtype=np.float32)


class Recorded:
    """A combination and the shapes it was run in."""

    def __init__(self, combine: Combine) -> None:
        self.combine = combine
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        assert states.shape == (*mask.shape, HIDDEN)
        self.shapes.append(mask.shape)
        return self.combine(states, mask)


def outputs_of(counts: NDArray[np.intp], learned: bool) -> NDArray[np.float32]:
    rng = np.random.default_rng(int(counts.sum()))
    return rng.normal(size=(int(counts.sum()), 1 + HIDDEN) if learned else int(counts.sum())).astype(np.float32)


@given(COUNTS, CAP, st.sampled_from(["max", "mean", "sum", "states", "term_weighted"]))
def test_in_parts_equals_all_at_once(counts: NDArray[np.intp], cap: int, name: str) -> None:
    aggregator, learned = AGGREGATORS.create({"name": name}), name == "states"
    outputs = outputs_of(counts, learned)
    weights = np.random.default_rng(0).choice(np.asarray([1e-6, 1, 4], np.float32), int(counts.sum()))
    waiting = Aggregation(aggregator, counts, mean_state if learned else None, cap, weights=weights)
    assert waiting.done == (not counts.any())
    steps = 0
    while not waiting.done:
        waiting.step(outputs)
        steps += 1
    assert steps == (len(parts(counts, cap)) if learned else int(counts.any()))
    expected = aggregate(aggregator, outputs, counts, mean_state if learned else None, weights)
    assert waiting.logits == pytest.approx(expected.logits, abs=1e-5)
    assert waiting.passages == pytest.approx(expected.passages, abs=1e-5)


@given(COUNTS, CAP)
def test_learned_modules_meet_few_shapes(counts: NDArray[np.intp], cap: int) -> None:
    recorded = Recorded(mean_state)
    waiting = Aggregation(AGGREGATORS.create({"name": "states"}), counts, recorded, cap)
    while not waiting.done:
        waiting.step(outputs_of(counts, learned=True))
    for rows, width in recorded.shapes:
        assert (padded_size(rows), padded_size(width)) == (rows, width)
        largest = max(rows for rows, of_width in shapes(40, cap) if of_width == width)  # was warmed up
        assert rows <= largest


def test_shapes_worked_example() -> None:
    assert shapes(5, 16) == [(1, 1), (1, 2), (1, 4), (1, 8), (2, 8), (4, 4), (8, 2), (16, 1)]
    assert max(width for _, width in shapes(0, 4096)) == 16


@given(COUNTS, CAP, st.integers(0, 2**32 - 1), st.booleans())
def test_the_known_sequences_agree_with_a_plain_loop(counts: NDArray[np.intp], cap: int, seed: int, learned: bool) -> None:
    """A document counts once all of its sequences are scored, and then as if it were alone."""
    outputs = outputs_of(counts, learned=learned)
    scored = np.random.default_rng(seed).random(len(outputs)) < 0.7
    aggregator = AGGREGATORS.create({"name": "states" if learned else "max"})
    combine = mean_state if learned else None
    found = Aggregation(aggregator, counts, combine, cap).aggregate_known(
        np.where(scored[:, None] if learned else scored, outputs, np.nan), scored
    )
    assert found.passages.shape == scored.shape
    start = 0
    for count, logit in zip(counts, found.logits, strict=True):
        rows = slice(start, start + count)
        whole = count > 0 and scored[rows].all()
        expected = aggregate(aggregator, outputs[rows], np.asarray([count]), combine)
        assert logit == pytest.approx(expected.logits[0] if whole else -np.inf, abs=1e-5)
        assert found.passages[rows] == pytest.approx(expected.passages if whole else np.full(count, -np.inf), abs=1e-5)
        start += count
