"""Scores of passages to scores of documents in training, against what serving does."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from keyblock.aggregation import AGGREGATORS, aggregate
from training.models.reductions import REDUCTIONS, padded, reduce_scores

COUNTS = st.lists(st.integers(1, 6), min_size=1, max_size=8)


def test_every_score_level_aggregator_can_be_trained_through() -> None:
    assert sorted(REDUCTIONS) == [name for name in AGGREGATORS.names() if not AGGREGATORS.create(name).learned]


@pytest.mark.parametrize("name", REDUCTIONS)
@given(counts=COUNTS, seed=st.integers(0, 2**32 - 1))
def test_training_and_serving_agree(name: str, counts: list[int], seed: int) -> None:
    logits = np.random.default_rng(seed).normal(-2, 3, sum(counts)).astype(np.float32)
    mask = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
    trained = reduce_scores(name, padded(torch.from_numpy(logits), mask), mask)
    served = aggregate(AGGREGATORS.create(name), logits, np.asarray(counts)).logits
    np.testing.assert_allclose(trained.numpy(), served, rtol=1e-5, atol=1e-5)


@given(counts=COUNTS)
def test_values_are_dealt_out_to_their_documents(counts: list[int]) -> None:
    mask = torch.arange(max(counts)) < torch.tensor(counts)[:, None]
    values = torch.arange(1.0, 1 + 2 * sum(counts)).reshape(-1, 2)
    places = padded(values, mask)
    assert places.shape == (len(counts), max(counts), 2)
    for of, document, count in zip(values.split(counts), places, counts, strict=True):
        assert document[:count].tolist() == of.tolist()
        assert not document[count:].any()


@pytest.mark.parametrize(
    ("name", "gradients"),
    [
        ("joint", [1.0, 0.0, 0.0, 1.0]),
        ("max", [0.0, 1.0, 0.0, 1.0]),
        ("mean", [1 / 3, 1 / 3, 1 / 3, 1.0]),
        ("sum", [1.0, 1.0, 1.0, 1.0]),
    ],
)
def test_gradients_by_hand(name: str, gradients: list[float]) -> None:
    """Of logits -3, -1, -2 and, of another document, -4: each learns by its part in its document's score."""
    logits = torch.tensor([-3.0, -1.0, -2.0, -4.0], requires_grad=True)
    mask = torch.tensor([[True, True, True], [True, False, False]])
    reduce_scores(name, padded(logits, mask), mask).sum().backward()
    assert logits.grad is not None
    np.testing.assert_allclose(logits.grad.tolist(), gradients, rtol=1e-6)
