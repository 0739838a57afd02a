"""IDCM's sum of the best passages, by hand and beside a slow version."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from tests.training.models.test_aggregators import HIDDEN, built, documents
from training.model.aggregators import build_aggregation


def first(states: Tensor) -> Tensor:
    """A linear layer: a state's first feature is its score."""
    return states[..., 0]


def test_top_by_hand() -> None:
    """Scores 5, -1, 7, 2 under weights 1, 0.5, 0.25 give 7 + 5 / 2 + 2 / 4; two passages 4 - 3 / 2; one -8; none 0."""
    module = built({"name": "top", "best": 3})
    module.weights.data = torch.tensor([1.0, 0.5, 0.25])
    states, mask = documents(4, 2, 1, 0)
    states[..., 0] = torch.tensor([[5.0, -1.0, 7.0, 2.0], [-3.0, 4.0, 9.0, 9.0], [-8.0, 9.0, 9.0, 9.0], [9.0] * 4])
    assert module.logits(states, mask, first).tolist() == [10.0, 2.5, -8.0, 0.0], "what padding holds is not read"


@settings(max_examples=30)
@given(counts=st.lists(st.integers(0, 9), min_size=1, max_size=4), padding=st.integers(0, 3), best=st.integers(1, 5))
def test_top_beside_a_slow_version(counts: list[int], padding: int, best: int) -> None:
    module = built({"name": "top", "best": best}, spread=1.0)
    states, mask = documents(*counts)
    found = module.logits(F.pad(states, (0, 0, 0, padding), value=1e9), F.pad(mask, (0, padding)), first)
    expected = [
        sum(
            score * weight
            for score, weight in zip(sorted(own[real, 0].tolist(), reverse=True), module.weights.tolist(), strict=False)
        )
        for own, real in zip(states, mask, strict=True)
    ]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float32), atol=1e-5, rtol=1e-5)


def test_top_learns_weights_and_from_the_passages_that_count_alone() -> None:
    module = build_aggregation({"name": "top", "best": 2}, HIDDEN)
    states, mask = documents(3, 1)
    states[..., 0] = torch.tensor([[1.0, 3.0, 2.0], [4.0, 0.0, 0.0]])
    states.requires_grad_()
    module.logits(states, mask, first).sum().backward()
    assert states.grad[..., 0].tolist() == [[0, 1, 1], [1, 0, 0]]
    assert module.weights.grad.tolist() == [7, 2], "3 + 4 are best, 2 is second, and the other document has none"
