"""From sequences to documents, against slow loops; padding never changes a score."""

from collections.abc import Iterable

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from keyblock.aggregation import AGGREGATORS, Combine, aggregate
from training.declarations import STATE_AGGREGATORS
from training.model.aggregators import build_aggregation
from training.model.ranker_module import padded

HIDDEN = 6
NAMES = ["joint", "max", "mean", "sum", "term_weighted"]
COUNTS = st.lists(st.integers(0, 7), max_size=9).map(lambda counts: np.asarray(counts, dtype=np.intp))
SEED = st.integers(0, 2**32 - 1)
SCORES = {
    "joint": lambda logits: logits[0],
    "max": max,
    "mean": lambda logits: sum(logits) / len(logits),
    "sum": sum,
    "term_weighted": lambda logits: sum(w * logit for w, logit in zip(WEIGHTS, logits, strict=False)) / sum(WEIGHTS[: len(logits)]),
}
WEIGHTS = [1e-6, 3.0, 1.0, 2.0, 1e-6, 7.0, 1.0]  # of the sequences of each document, in order


def outputs_of(counts: NDArray[np.intp], seed: int, width: int = 0) -> NDArray[np.float32]:
    """Logits of both signs, or logits with states behind them."""
    shape = (int(counts.sum()), 1 + width) if width else (int(counts.sum()),)
    return np.random.default_rng(seed).normal(-1, 3, shape).astype(np.float32)


def weights_for(counts: Iterable[int]) -> NDArray[np.float32]:
    return np.asarray([weight for count in counts for weight in WEIGHTS[:count]], np.float32)


def slow_aggregate(name: str, outputs: NDArray[np.float32], counts: NDArray[np.intp]) -> list[float]:
    """Document by document."""
    scores, place = [], 0
    for count in counts.tolist():
        logits = outputs[place : place + count].tolist()
        scores.append(SCORES[name](logits) if logits else -np.inf)
        place += count
    return scores


@pytest.mark.parametrize("name", NAMES)
@given(counts=COUNTS, seed=SEED)
@example(counts=np.zeros(0, np.intp), seed=0)
@example(counts=np.zeros(2, np.intp), seed=0)
def test_scores_equal_a_slow_loop(name: str, counts: NDArray[np.intp], seed: int) -> None:
    """A model's states behind the logits are no part of a score."""
    aggregator, outputs = AGGREGATORS.create(name), outputs_of(counts, seed, HIDDEN)
    expected = slow_aggregate(name, outputs[:, 0], counts)
    for given_outputs in (outputs[:, 0], outputs):
        scores = aggregate(aggregator, given_outputs, counts, weights=weights_for(counts))
        assert scores.logits.dtype == np.float32
        np.testing.assert_allclose(scores.logits, expected, rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(scores.passages, outputs[:, 0])


@pytest.mark.parametrize("name", NAMES)
@given(passages=st.integers(1, 6), padding=st.integers(0, 5), seed=SEED)
def test_padding_never_changes_a_score(name: str, passages: int, padding: int, seed: int) -> None:
    """Whatever the padding holds; logits are mostly below 0, so that a floor at 0 would show."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(-4, 2, (3, passages)).astype(np.float32)
    alone = AGGREGATORS.create(name).combine(logits, np.ones_like(logits, dtype=np.bool_))
    filling = rng.choice(np.asarray([0, 1e9, -1e9, np.nan, np.inf], dtype=np.float32), (3, padding))
    mask = np.arange(passages + padding) < np.full((3, 1), passages)
    behind = AGGREGATORS.create(name).combine(np.hstack([logits, filling]), mask)
    np.testing.assert_allclose(behind, alone, rtol=1e-5)


def module_of(name: str) -> Combine:
    """A learned module and a linear layer, as a model has them."""
    torch.manual_seed(0)
    module = build_aggregation({"name": name} | ({"heads": 2} if name == "transformer" else {}), HIDDEN).eval()
    layer = torch.linspace(-1, 1, HIDDEN)

    def combine(states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        with torch.inference_mode():
            logits = module.logits(torch.from_numpy(states), torch.from_numpy(mask), lambda states: states @ layer)
            return np.asarray(logits.numpy())

    return combine


@pytest.mark.parametrize("name", STATE_AGGREGATORS.names())
def test_documents_never_change_each_others_scores(name: str) -> None:
    """Together each is padded to the longest; alone none is."""
    combine, aggregator = module_of(name), AGGREGATORS.create("states")

    @settings(max_examples=10)
    @given(counts=COUNTS, seed=SEED)
    def check(counts: NDArray[np.intp], seed: int) -> None:
        outputs = outputs_of(counts, seed, HIDDEN)
        together = aggregate(aggregator, outputs, counts, combine).logits
        parts = np.split(outputs, np.cumsum(counts)[:-1]) if len(counts) else []
        alone = [aggregate(aggregator, part, np.asarray([len(part)]), combine).logits.item() for part in parts]
        np.testing.assert_allclose(together, alone, rtol=1e-4, atol=1e-5)
        assert np.isneginf(together).tolist() == (counts == 0).tolist()

    check()


def test_states_by_hand() -> None:
    """The mean of two passages' states, their sum as the score; the logits in front take no part."""
    outputs = np.asarray([[9, 1, 2], [9, 3, 4], [9, -5, 0]], dtype=np.float32)

    def combine(states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        assert mask.tolist() in ([[True, True], [True, False]], [[True]] * 3)
        assert not states[~mask].any()
        return np.asarray(states.sum(axis=(1, 2)) / mask.sum(axis=1), dtype=np.float32)

    found = aggregate(AGGREGATORS.create("states"), outputs, np.asarray([2, 0, 1]), combine)
    assert found.logits.tolist() == [5, -np.inf, -5]
    assert found.passages.tolist() == [3, 7, -5], "each passage as if the document had no other"


def test_weights_by_hand() -> None:
    """Logits 1 and 4 of sentences with 3 words of the query and 1; then of two without any: those count alike."""
    outputs, counts = np.asarray([1.0, 4.0, 1.0, 4.0], np.float32), np.asarray([2, 0, 2])
    found = aggregate(AGGREGATORS.create("term_weighted"), outputs, counts, weights=np.asarray([3, 1, 1e-6, 1e-6], np.float32))
    np.testing.assert_allclose(found.logits, [1.75, -np.inf, 2.5], rtol=1e-6)
    assert found.passages.tolist() == [1, 4, 1, 4]
    with pytest.raises(ValueError, match="the aggregator 'term_weighted' weighs sequences, but nothing says what each counts"):
        aggregate(AGGREGATORS.create("term_weighted"), outputs, counts)


def test_states_need_a_module_and_states() -> None:
    counts, states = np.asarray([2]), AGGREGATORS.create("states")
    for outputs, combine in ((outputs_of(counts, 0, HIDDEN), None), (outputs_of(counts, 0), module_of("max"))):
        with pytest.raises(ValueError, match="combines \\[CLS\\] states, but the model has no module for it"):
            aggregate(states, outputs, counts, combine)


@pytest.mark.parametrize("name", NAMES)
@given(counts=st.lists(st.integers(1, 6), min_size=1, max_size=8), seed=SEED)
def test_training_and_serving_agree(name: str, counts: list[int], seed: int) -> None:
    logits = np.random.default_rng(seed).normal(-2, 3, sum(counts)).astype(np.float32)
    mask = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
    aggregator = AGGREGATORS.create(name)
    real = padded(torch.from_numpy(weights_for(counts)), mask) if aggregator.weighted else mask
    trained = aggregator.combine(padded(torch.from_numpy(logits), mask), real, torch)
    weights = weights_for(counts)
    served = aggregate(AGGREGATORS.create(name), logits, np.asarray(counts), weights=weights).logits
    np.testing.assert_allclose(trained.numpy(), served, rtol=1e-5, atol=1e-5)
