"""CEDR's members against hand-worked numbers and against loops over one matrix of the whole document."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from keyblock.packing import Packed
from lab.models.cedr import (
    BEST,
    BINS,
    EXACT,
    GRAMS,
    LEAST,
    LEAST_COUNT,
    MEANS,
    SOFT,
    Cedr,
    CedrDrmm,
    CedrKnrm,
    CedrPacrr,
    Kernels,
    best_places,
    histograms,
    signals,
)
from lab.models.tokens import Tokens


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
    """Two of three cells are 1 and one .999, the fourth is not of the passage: the kernel at 1 counts 2 and e^-0.5 of the third.

    That at 0.9 takes e^-0.5 of each of the two, and e^-(.099^2 / .02) of the third.
    """
    found = Kernels()(torch.tensor([[[[1.0, 1.0, 0.999, 1.0]]]]), torch.tensor([[True, True, True, False]]))
    assert found.shape == (1, 1, 1, len(MEANS))
    assert found[0, 0, 0, 0].item() == pytest.approx(2 + math.exp(-0.5), abs=1e-4)
    assert found[0, 0, 0, 1].item() == pytest.approx(2 * math.exp(-0.5) + math.exp(-(0.099**2) / 0.02), rel=1e-5)


def test_kernels_are_those_of_a_loop() -> None:
    cosines, passage = torch.rand(2, 3, 4, 5) * 2 - 1, torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
    found = Kernels()(cosines, passage)
    for document in range(2):
        for channel in range(3):
            torch.testing.assert_close(found[document, channel], slow_frequencies(cosines[document, channel], passage[document]))


@pytest.fixture(params=[CedrKnrm, CedrDrmm])
def member(request: pytest.FixtureRequest, tiny_backbone: Path) -> Cedr:
    model = request.param.from_backbone(str(tiny_backbone), query_tokens=4).eval()
    assert isinstance(model, Cedr)
    return model


def a_cedr(tiny_backbone: Path) -> CedrKnrm:
    return CedrKnrm.from_backbone(str(tiny_backbone), query_tokens=4).eval()


def test_passages_are_one_matrix(member: Cedr) -> None:
    """Features of two halves, combined, give what one matrix of the whole gives, where [CLS] is the same for both."""
    layers = torch.randn(1, member.channels, 9, member.encoder.config.hidden_size)
    ids, query = torch.zeros(1, 9, dtype=torch.long), torch.tensor([[True, True, False, False]])
    passage = torch.tensor([[False] * 4 + [True] * 4 + [False]])
    whole = member.features(Tokens(ids, layers, query, passage))
    halves = [passage & (torch.arange(9) < 6), passage & (torch.arange(9) >= 6)]
    parts = torch.cat([member.features(Tokens(ids, layers, query, half)) for half in halves])
    one = member.combine(whole[:, None], torch.tensor([[True]]))
    two = member.combine(parts[None], torch.tensor([[True, True]]))
    torch.testing.assert_close(one, two)
    padded = torch.cat([parts, torch.full_like(parts[:1], 7.0)])[None]
    torch.testing.assert_close(member.combine(padded, torch.tensor([[True, True, False]])), two)


def test_the_document_that_repeats_the_querys_word_wins_without_training(tiny_backbone: Path) -> None:
    """The embeddings are of words alone, and the head weighs the exact kernel of their layer: the logit is log of a count."""
    model = a_cedr(tiny_backbone)
    embeddings = model.encoder.embeddings
    with torch.no_grad():
        for part in (embeddings.position_embeddings, embeddings.token_type_embeddings, model.head):
            part.weight.zero_()
        model.head.bias.zero_()
        model.head.weight[0, model.encoder.config.hidden_size] = 1.0
        documents = [[20, 21, 22, 23], [20, 9, 22, 23], [9, 21, 9, 23]]  # 9 is the query's
        packed = [Packed(np.asarray([2, 9, 3, *document, 3], np.int32), 3, np.zeros(1, np.intp)) for document in documents]
        logits = model(*model.inputs(packed, 0)).tolist()
    assert logits == pytest.approx([math.log(LEAST), 0.0, math.log(2)], abs=1e-4)


def test_cosines_are_counted_in_bins_of_a_fifth() -> None:
    """-1 is in the first bin; 0.05 in that from 0 to 0.2; two are 1, one nearly so by rounding alone; the last is padding."""
    cosines = torch.tensor([[[[-1.0, 0.05, 1.0, 0.9999999, 0.999, 1.0]]]])
    found = histograms(cosines, torch.tensor([[True] * 5 + [False]]))
    assert found.tolist() == [[[[1, 0, 0, 0, 0, 1, 0, 0, 0, 1, 2]]]]


def test_histograms_are_those_of_a_loop() -> None:
    torch.manual_seed(0)  # none so near to a border that rounding decides
    cosines, passage = torch.rand(2, 3, 4, 5) * 2 - 1, torch.tensor([[True] * 5, [True] * 2 + [False] * 3])
    counts = torch.zeros(2, 3, 4, BINS)
    for document, channel, row, column in np.ndindex(2, 3, 4, 5):
        if passage[document, column]:
            counts[document, channel, row, int((float(cosines[document, channel, row, column]) + 1) * 5)] += 1
    torch.testing.assert_close(histograms(cosines, passage), counts)


def test_a_term_of_drmm_reads_its_counts_beside_cls(tiny_backbone: Path) -> None:
    """Two real terms of four; the only weight is on the last layer's last bin: 3 exact matches of the first, none of the second."""
    model = CedrDrmm.from_backbone(str(tiny_backbone), query_tokens=4).eval()
    state = torch.zeros(1, 2, model.hidden_size)
    hidden = model.encoder.config.hidden_size
    state[..., hidden : hidden + 2] = 1.0
    state[0, 0, hidden + 4 + model.numbers - 1], state[0, 1, hidden + 4 + model.numbers - 1] = 1.0, 2.0
    with torch.no_grad():
        for parameter in model.term.parameters():
            parameter.zero_()
        model.term[0].weight[0, model.numbers - 1] = 1.0
        model.term[2].weight[0, 0] = 1.0
        model.term[0].bias[0] = 12.0  # above -log(LEAST_COUNT), so that the hidden layer lets both through
        logit = model.combine(state, torch.tensor([[True, True]]))
    assert logit.item() == pytest.approx(math.log(3 + LEAST_COUNT) + 12 + math.log(LEAST_COUNT) + 12, abs=1e-4)


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
