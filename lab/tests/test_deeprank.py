"""DeepRank against hand-worked numbers and loops: contexts, their measure, and how a document's contexts are read."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from lab.models.deeprank import DeepRank, occurrences
from lab.models.words import Texts
from lab.tests.test_families import packed
from training.model.families import new_ranker


def a_model(tiny_backbone: Path, **settings: int) -> DeepRank:
    torch.manual_seed(1)
    family = {"name": "deeprank", "query_tokens": 3, "contexts": 2, "beside": 2, **settings}
    model = new_ranker(family, str(tiny_backbone)).eval()
    assert isinstance(model, DeepRank)
    return model


def some_texts(query: list[int], passage: list[int]) -> Texts:
    """Of one sequence, with two places of padding in each."""
    ids = torch.tensor([[*query, 0, 0]]), torch.tensor([[*passage, 0, 0]])
    return Texts(
        ids[0], torch.arange(len(query) + 2)[None] < len(query), ids[1], torch.arange(len(passage) + 2)[None] < len(passage)
    )


def test_contexts_are_where_the_querys_tokens_stand() -> None:
    """The first two of three 5s, one 6, no 7; padding matches nothing, though its id is the same."""
    places, real = occurrences(some_texts([5, 6, 7], [5, 9, 6, 5, 5]), contexts=2)
    assert real.tolist() == [[[True, True], [True, False], [False, False], [False, False], [False, False]]]
    assert places[real].tolist() == [0, 3, 2]


def slow_measure(model: DeepRank, query: list[int], passage: list[int], at: int) -> Tensor:
    """Of the context around a place, whose cells are filled one by one; it has no padding at all, but at the passage's ends."""
    ids = [passage[place] if 0 <= place < len(passage) else None for place in range(at - model.beside, at + model.beside + 1)]
    cells = torch.zeros(3, len(query), len(ids))
    for row, asked in enumerate(query):
        for column, shown in enumerate(ids):
            if shown is not None:
                one, other = model.table.weight[asked], model.table.weight[shown]
                cells[0, row, column], cells[1, row, column] = model.asking(one), model.showing(other)
                cells[2, row, column] = F.cosine_similarity(one, other, dim=0)
    inside = torch.tensor([shown is not None for shown in ids])
    return model.measure(cells[None]).relu()[0][..., inside].amax((1, 2))


def test_a_measure_is_that_of_a_context_by_itself(tiny_backbone: Path) -> None:
    model, query, passage = a_model(tiny_backbone), [5, 6, 7], [5, 9, 6, 5, 5]
    texts = some_texts(query, passage)
    torch.nn.init.normal_(model.table.weight)  # padding's, too
    with torch.no_grad():
        measured = model.measured(texts, *occurrences(texts, 3))[0]
        for row, number, at in ((0, 0, 0), (0, 1, 3), (0, 2, 4), (1, 0, 2)):
            torch.testing.assert_close(measured[row, number], slow_measure(model, query, passage, at))
    assert not measured[1, 1].any()
    assert not measured[2:].any()


def test_a_filter_can_know_a_phrase(tiny_backbone: Path) -> None:
    """One that adds the cosines of a diagonal says 2 where "5 6" stands in order, and 1 around a 5 alone."""
    model = a_model(tiny_backbone, filters=1)
    with torch.no_grad():
        model.table.weight[:10] = torch.eye(10, 32)
        model.measure.weight.zero_()
        model.measure.bias.zero_()
        model.measure.weight[0, 2] = torch.diag(torch.tensor([0.0, 1.0, 1.0]))
        texts = some_texts([5, 6], [5, 6, 9, 9, 9, 5, 9, 9])
        measured = model.measured(texts, *occurrences(texts, 2))
    assert measured[0, 0].tolist() == [[2.0], [1.0]]


def test_contexts_are_read_in_order_and_gaps_passed_over(tiny_backbone: Path) -> None:
    model = a_model(tiny_backbone)
    read, real = torch.randn(1, 2, 4, 5), torch.tensor([[[True, False, True, False], [False] * 4]])
    with torch.no_grad():
        found = model.last_state(read, real)
        _, last = model.reader(read[0, 0, [0, 2]][None])
    torch.testing.assert_close(found[0, 0], last[0, 0])
    assert not found[0, 1].any()


def test_passages_are_one_text(tiny_backbone: Path) -> None:
    """Cut where no context is cut, a passage's halves give the whole's logit: places go on counting."""
    model = a_model(tiny_backbone, contexts=4)
    halves = [[9, 5, 10, 11, 12], [13, 14, 6, 5, 15, 16]]
    with torch.no_grad():
        parts = model.states(*model.inputs([packed([5, 6], half) for half in halves], 0))
        whole = model.states(*model.inputs([packed([5, 6], halves[0] + halves[1])], 0))
        logit = model.combine(parts[None], torch.tensor([[True, True]]))
        torch.testing.assert_close(logit, model.combine(whole[None], torch.tensor([[True]])))
        turned = model.combine(parts.flip(0)[None], torch.tensor([[True, True]]))
    assert abs(turned - logit) > 1e-6


def test_a_logit_is_the_weighted_sum_over_the_querys_tokens(tiny_backbone: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first two tokens say 3 and 5 and weigh 2 and 10, the third has no context: 56."""
    model = a_model(tiny_backbone, memory=1)
    monkeypatch.setattr(model, "last_state", lambda *_: torch.tensor([[[3.0], [5.0], [0.0]]]))
    states = torch.zeros(1, 1, model.hidden_size)
    states[..., -4:-1] = torch.tensor([2.0, 10.0, 99.0])
    with torch.no_grad():
        model.head.weight.fill_(1.0)
        assert model.combine(states, torch.tensor([[True]])).tolist() == [56.0]


def test_a_document_without_the_querys_tokens_says_nothing(tiny_backbone: Path) -> None:
    model = a_model(tiny_backbone)
    assert model(*model.inputs([packed([5, 6], [7, 8, 9])], 0)).tolist() == [0.0]
