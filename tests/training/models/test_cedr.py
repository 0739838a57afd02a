"""CEDR's members against hand-worked numbers and against loops over one matrix of the whole document."""

import math

import torch
from torch import Tensor

from training.models.cedr import EXACT, LEAST, MEANS, SOFT, CedrKnrm, Kernels
from training.models.token_ranker import Tokens


def slow_frequencies(cosines: Tensor, passage: Tensor) -> Tensor:
    """Kernel by kernel, cell by cell, of one matrix (query_tokens, length)."""
    found = torch.zeros(len(cosines), len(MEANS))
    for row in range(len(cosines)):
        for column in range(cosines.shape[1]):
            for number, mean in enumerate(MEANS):
                width = SOFT if number else EXACT
                if passage[column]:
                    found[row, number] += math.exp(-((float(cosines[row, column]) - mean) ** 2) / (2 * width**2))
    return found


def test_the_exact_kernel_counts_equal_tokens() -> None:
    """Two of three cells are 1, the fourth is not of the passage: the kernel at 1 counts 2; that at 0.9 takes e^-0.5 of each."""
    found = Kernels()(torch.tensor([[[[1.0, 1.0, 0.0, 1.0]]]]), torch.tensor([[True, True, True, False]]))
    assert found.shape == (1, 1, 1, len(MEANS))
    assert found[0, 0, 0, 0].item() == 2.0
    assert math.isclose(found[0, 0, 0, 1].item(), 2 * math.exp(-0.5), rel_tol=1e-5)


def test_kernels_are_those_of_a_loop() -> None:
    cosines, passage = torch.rand(2, 3, 4, 5) * 2 - 1, torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
    found = Kernels()(cosines, passage)
    for document in range(2):
        for channel in range(3):
            torch.testing.assert_close(found[document, channel], slow_frequencies(cosines[document, channel], passage[document]))


def a_cedr(tiny_backbone: object) -> CedrKnrm:
    model = CedrKnrm.from_backbone(str(tiny_backbone), query_tokens=4).eval()
    assert isinstance(model, CedrKnrm)
    return model


def test_passages_are_one_matrix(tiny_backbone: object) -> None:
    """Features of two halves, combined, give what one matrix of the whole gives, where [CLS] is the same for both."""
    model = a_cedr(tiny_backbone)
    layers = torch.randn(1, model.channels, 9, model.encoder.config.hidden_size)
    ids, query = torch.zeros(1, 9, dtype=torch.long), torch.tensor([[True, True, False, False]])
    passage = torch.tensor([[False] * 4 + [True] * 4 + [False]])
    whole = model.features(Tokens(ids, layers, query, passage))
    halves = [passage & (torch.arange(9) < 6), passage & (torch.arange(9) >= 6)]
    parts = torch.cat([model.features(Tokens(ids, layers, query, half)) for half in halves])
    one = model.combine(whole[:, None], torch.tensor([[True]]))
    two = model.combine(parts[None], torch.tensor([[True, True]]))
    torch.testing.assert_close(one, two)
    padded = torch.cat([parts, torch.full_like(parts[:1], 7.0)])[None]
    torch.testing.assert_close(model.combine(padded, torch.tensor([[True, True, False]])), two)


def test_a_document_without_a_match_has_the_logarithm_of_nearly_nothing(tiny_backbone: object) -> None:
    """One query token, no kernel moved: each of the features is log(LEAST), and the logit their weighted sum."""
    model = a_cedr(tiny_backbone)
    state = torch.zeros(1, 1, model.hidden_size)
    hidden = model.encoder.config.hidden_size
    state[0, 0, hidden] = 1.0  # the first query token is real
    with torch.no_grad():
        model.head.weight.fill_(1.0)
        model.head.bias.zero_()
        logit = model.combine(state, torch.tensor([[True]]))
    assert math.isclose(logit.item(), model.channels * len(MEANS) * math.log(LEAST), rel_tol=1e-5)
