"""Losses on numbers worked by hand; groups hold the relevant document first."""

import math

import pytest
import torch

from training import declarations
from training.learning.losses import LOSSES, hinge, listwise, logistic, pointwise

SCORES = torch.tensor([[2.0, 1.5, 0.0], [0.0, 3.0, -2.0]])


def test_hinge_by_hand() -> None:
    """max(0, 1 - s+ + s-) of the pairs: 0.5, 0 (a margin of 2), 4, 0; their mean is 4.5 / 4."""
    assert hinge(SCORES).item() == pytest.approx(1.125)


def test_hinge_asks_for_a_margin_of_one() -> None:
    assert hinge(torch.tensor([[1.0, 0.0]])).item() == 0
    assert hinge(torch.tensor([[0.75, 0.0]])).item() == 0.25


def test_logistic_by_hand() -> None:
    pairs = [1 + math.exp(1.5 - 2), 1 + math.exp(0 - 2), 1 + math.exp(3 - 0), 1 + math.exp(-2 - 0)]
    assert logistic(SCORES).item() == pytest.approx(sum(map(math.log, pairs)) / 4)


def test_listwise_by_hand() -> None:
    """Cross-entropy: minus the log of the relevant document's share of exp(score), averaged over groups."""
    first = math.exp(2) / (math.exp(2) + math.exp(1.5) + 1)
    second = 1 / (1 + math.exp(3) + math.exp(-2))
    assert listwise(SCORES).item() == pytest.approx(-(math.log(first) + math.log(second)) / 2)


def test_listwise_over_one_negative_is_logistic() -> None:
    scores = torch.randn(5, 2, generator=torch.Generator().manual_seed(0))
    assert listwise(scores).item() == pytest.approx(logistic(scores).item())


def test_pointwise_by_hand() -> None:
    """Minus ln p of the relevant documents and minus ln (1 - p) of the others, p the sigmoid: softplus(-s+) and softplus(s-)."""
    terms = [math.log(1 + math.exp(score)) for score in (-2, 1.5, 0, 0, 3, -2)]
    assert pointwise(SCORES).item() == pytest.approx(sum(terms) / 6)


@pytest.mark.parametrize("name", [name for name in LOSSES if name != "pointwise"])
def test_the_gradient_lifts_the_relevant_document_and_ignores_a_shift(name: str) -> None:
    scores = torch.zeros(3, 4, requires_grad=True)
    LOSSES[name](scores).backward()
    assert scores.grad is not None
    assert (scores.grad[:, 0] < 0).all()
    assert (scores.grad[:, 1:] > 0).all()
    torch.testing.assert_close(scores.grad.sum(1), torch.zeros(3))
    torch.testing.assert_close(LOSSES[name](SCORES + 7), LOSSES[name](SCORES))


def test_the_names_are_those_of_the_recipes() -> None:
    assert tuple(LOSSES) == declarations.LOSSES == ("hinge", "listwise", "logistic", "pointwise")
