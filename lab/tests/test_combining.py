"""What families that combine passages by themselves share, on the smallest of them: a document is the sum of its passages."""

import pytest
import torch
from torch import Tensor

from lab.models.tokens import Combining
from lab.tests.test_token_ranker import packed
from tests.training.models.families import Bag


class Sum(Combining, Bag):
    """A state's features are added up over passages and weighed by the head."""

    def documents_of(self, states: Tensor, mask: Tensor) -> Tensor:
        """See Combining."""
        return self.head(states.sum(1)).squeeze(-1)


@pytest.fixture
def model() -> Sum:
    found = Sum(9, 2)
    with torch.no_grad():
        found.head.weight[:] = torch.tensor([[1.0, 10.0]])
        found.head.bias.zero_()
    return found


def test_a_document_is_what_its_passages_say_together(model: Sum) -> None:
    """(1 + 3) + 10 (2 + 4) = 64; what padding holds is not read."""
    states = torch.tensor([[[1.0, 2.0], [3.0, 4.0], [7.0, float("inf")]]])
    assert model.combine(states, torch.tensor([[True, True, False]])).tolist() == [64.0]


def test_a_score_is_that_of_an_only_passage(model: Sum) -> None:
    assert model.scores(torch.tensor([[[1.0, 2.0]], [[3.0, 4.0]]])).tolist() == [[21.0], [43.0]]
    assert model.combines


def test_types_are_distinguished_with_any_backbone(model: Sum) -> None:
    _, types, _ = model.inputs([packed([5], [6, 7])], 0, document_type=0)
    assert types.tolist() == [[0, 0, 0, 1, 1, 1]]
