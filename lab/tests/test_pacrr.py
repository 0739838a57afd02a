"""CEDR-PACRR against hand-worked numbers and against loops."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from lab.models.cedr import BEST, GRAMS, CedrPacrr, best_places, signals
from lab.models.tokens import Tokens


def a_pacrr(tiny_backbone: Path, query_tokens: int = 4) -> CedrPacrr:
    torch.manual_seed(0)
    return CedrPacrr.from_backbone(str(tiny_backbone), query_tokens=query_tokens).eval()


def slow_signals(gram: nn.Conv2d, cosines: Tensor) -> Tensor:
    """Window by window, filter by filter; what is outside counts as 0."""
    size, (_, channels, rows, columns) = gram.kernel_size[0], cosines.shape
    found = torch.zeros(len(cosines), rows, columns)
    for document in range(len(cosines)):
        for row in range(rows):
            for column in range(columns):
                window = torch.zeros(channels, size, size)
                inside = cosines[document, :, row : row + size, column : column + size]
                window[:, : inside.shape[1], : inside.shape[2]] = inside
                answers = (gram.weight * window).sum((1, 2, 3)) + gram.bias
                found[document, row, column] = max(0.0, float(answers.max()))
    return found


def diagonal(size: int) -> nn.Conv2d:
    """One filter over one channel that adds up a window's diagonal: the tokens of an n-gram that match in order."""
    gram = nn.Conv2d(1, 1, size)
    with torch.no_grad():
        gram.weight.copy_(torch.eye(size)[None, None])
        gram.bias.zero_()
    return gram


def test_a_bigram_that_matches_in_order_has_the_strongest_signal() -> None:
    """Query a b; passage a b x a: the bigram begins at the first place; of the second a alone half as much is left."""
    cosines = torch.tensor([[[[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0]]]])
    found = signals(diagonal(2), cosines)
    assert found.tolist() == [[[2.0, 0.0, 0.0, 1.0], [0.0, 1.0, 0.0, 0.0]]]
    assert best_places(found, torch.ones(1, 2, 4) > 0).tolist() == [[[2.0, 1.0], [1.0, 0.0]]]


@pytest.mark.parametrize("size", range(1, GRAMS + 1))
def test_signals_are_those_of_a_loop(size: int) -> None:
    gram, cosines = nn.Conv2d(3, 5, size), torch.rand(2, 3, 4, 6) * 2 - 1
    with torch.no_grad():
        torch.testing.assert_close(signals(gram, cosines), slow_signals(gram, cosines))


def test_a_place_of_padding_wins_nothing() -> None:
    """A filter's bias answers to padding, too, and louder than to what it does not like: it is not listened to there."""
    gram = nn.Conv2d(1, 1, 1)
    with torch.no_grad():
        gram.weight.fill_(1.0)
        gram.bias.fill_(0.5)
    cosines = torch.tensor([[[[-0.4, -0.3, 0.0, 0.0]]]])
    real = torch.tensor([[[True, True, False, False]]])
    with torch.no_grad():
        assert best_places(signals(gram, cosines), real)[0, 0].tolist() == pytest.approx([0.2, 0.1])
        gram.bias.fill_(-1.0)
        assert best_places(signals(gram, cosines), real).tolist() == [[[0.0, 0.0]]]


def test_the_best_places_of_a_document_are_those_of_its_passages(tiny_backbone: Path) -> None:
    """One query token of one, passages with best signals (5, 1), (4, 3) and padding: the document's are 5 and 4."""
    model = a_pacrr(tiny_backbone, query_tokens=1)
    hidden = model.encoder.config.hidden_size
    states = torch.zeros(2, 3, model.hidden_size)
    states[..., hidden] = 1.0
    states[0, :, hidden + 1 : hidden + 1 + BEST] = torch.tensor([[5.0, 1.0], [4.0, 3.0], [9.0, 9.0]])
    states[1, :, hidden + 1 : hidden + 1 + BEST] = torch.tensor([[5.0, 4.0], [9.0, 9.0], [9.0, 9.0]])
    mask = torch.tensor([[True, True, False], [True, False, False]])
    with torch.no_grad():
        several, one = model.combine(states, mask).tolist()
        louder = model.combine(states + 1.0, mask)[0].item()
    assert several == pytest.approx(one, abs=1e-6)
    assert abs(louder - several) > 1e-3


def test_no_ngram_reaches_into_the_next_passage(tiny_backbone: Path) -> None:
    """Unigrams of a text cut in two are those of the whole; longer ones are fewer."""
    model = a_pacrr(tiny_backbone)
    layers = torch.randn(1, model.channels, 9, model.encoder.config.hidden_size)
    query, passage = torch.ones(1, 4) > 0, torch.tensor([[False] * 4 + [True] * 4 + [False]])
    halves = [passage & (torch.arange(9) < 6), passage & (torch.arange(9) >= 6)]
    with torch.no_grad():
        whole, *parts = (model.by_query_token(Tokens(torch.zeros(1, 9), layers, query, part)) for part in (passage, *halves))
    best = torch.cat(parts, dim=2).unflatten(2, (2, GRAMS, BEST)).transpose(2, 3).flatten(3).topk(BEST, dim=-1).values
    whole = whole.unflatten(2, (GRAMS, BEST))
    torch.testing.assert_close(best[:, :, 0], whole[:, :, 0])
    assert not torch.allclose(best[:, :, 1:], whole[:, :, 1:])
