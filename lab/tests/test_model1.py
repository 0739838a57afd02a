"""Neural Model 1 against a hand-worked number and against a loop over pairs of tokens."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from lab.models.model1 import LEAST, NeuralModel1, Translation
from lab.models.tokens import Tokens


def a_model(tiny_backbone: Path) -> NeuralModel1:
    return NeuralModel1.from_backbone(str(tiny_backbone), query_tokens=3, width=5).eval()


@torch.no_grad()
def slow_translation(layer: Translation, query: Tensor, document: Tensor) -> float:
    """T of one pair, from one joined vector: [q, d, q * d] through one matrix, then another, then a sigmoid."""
    asked, read = layer.query(query).tanh(), layer.document(document).tanh()
    matrix = torch.cat([layer.of_query.weight, layer.of_document.weight, layer.of_both.weight], dim=1)
    bias = layer.of_query.bias + layer.of_document.bias + layer.of_both.bias
    first = (matrix @ torch.cat([asked, read, asked * read]) + bias).relu()
    return float(layer.last(layer.deeper(first).relu()).sigmoid())


def test_a_document_of_two_passages_worked_by_hand(tiny_backbone: Path) -> None:
    """Two query tokens; sums of T 1 and 2 over 4 tokens, and 3 and 0 over 6: P is 4/10 and 2/10, the logit log .4 + log .2."""
    states = torch.tensor([[[1, 1, 0, 1, 2, 0, 4], [1, 1, 0, 3, 0, 0, 6], [1, 1, 1, 9, 9, 9, 9]]], dtype=torch.float32)
    logit = a_model(tiny_backbone).combine(states, torch.tensor([[True, True, False]]))
    assert logit.item() == pytest.approx(math.log(0.4 + LEAST) + math.log(0.2 + LEAST))


def test_passages_are_one_document(tiny_backbone: Path) -> None:
    """Features of two parts, combined, are those of the whole; a token of neither counts nowhere."""
    model = a_model(tiny_backbone)
    layers, query = torch.randn(1, 2, 9, 32), torch.tensor([[True, True, False]])
    passage = torch.tensor([[False] * 4 + [True] * 4 + [False]])
    parts = [passage & (torch.arange(9) < 5), passage & (torch.arange(9) >= 5)]
    with torch.no_grad():
        whole, *two = (model.features(Tokens(torch.zeros(1, 9), layers, query, part)) for part in (passage, *parts))
        one = model.combine(whole[None], torch.tensor([[True]]))
        torch.testing.assert_close(model.combine(torch.cat(two)[None], torch.tensor([[True, True]])), one)
    expected = 0.0
    for asked in (1, 2):
        found = [slow_translation(model.translation, layers[0, -1, asked], layers[0, -1, place]) for place in range(4, 8)]
        expected += math.log(sum(found) / 4 + LEAST)
    assert one.item() == pytest.approx(expected, rel=1e-5)


def test_a_document_without_a_passage_has_the_least_probability(tiny_backbone: Path) -> None:
    states = torch.tensor([[[1, 0, 0, 0, 0, 0, 0]]], dtype=torch.float32)
    assert a_model(tiny_backbone).combine(states, torch.tensor([[True]])).item() == pytest.approx(math.log(LEAST))
