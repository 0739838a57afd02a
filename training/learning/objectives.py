"""From groups to a loss: what a step minimises.

A ranking loss takes scores of shape (groups, 1 + negatives), the relevant document first, and gives a scalar.
"""

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.nn.functional as F
from torch import Tensor

from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.scoring import Score
from training.evaluation.scoring import TorchModel, length_batches
from training.examples.examples import Examples, Row
from training.examples.sampling import Group
from training.models.arithmetic import in_bf16
from training.models.ranker_module import RankerModule
from training.recipe import Recipe

Loss = Callable[[Tensor], Tensor]


def hinge(scores: Tensor) -> Tensor:
    """Mean over pairs of max(0, 1 - s+ + s-) (KeyB section 4.3)."""
    return F.relu(1 - scores[:, :1] + scores[:, 1:]).mean()


def logistic(scores: Tensor) -> Tensor:
    """Mean over pairs of ln(1 + exp(s- - s+)) (RankNet)."""
    return F.softplus(scores[:, 1:] - scores[:, :1]).mean()


def listwise(scores: Tensor) -> Tensor:
    """Cross-entropy of the relevant document among its group (localized contrastive estimation, Gao et al. 2021)."""
    return F.cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long, device=scores.device))


def pointwise(scores: Tensor) -> Tensor:
    """Mean over documents of the cross-entropy of relevant or not (BeST section 4, for collections of few queries)."""
    labels = torch.zeros_like(scores)
    labels[:, 0] = 1
    return F.binary_cross_entropy_with_logits(scores, labels)


LOSSES: dict[str, Loss] = {"hinge": hinge, "listwise": listwise, "logistic": logistic, "pointwise": pointwise}
"""By the names that training.declarations gives them."""


AT_ONCE = {"cpu": 2048, "cuda": 32768}  # tokens: where more would be no faster, a batch has less padding


class Objective(Protocol):
    """What the loop minimises."""

    def __call__(self, model: RankerModule, groups: Sequence[Group]) -> Tensor:
        """The mean loss of the groups, a scalar."""

    def cost(self, group: Group) -> int:
        """Tokens that a group sends through the model with gradients, at most: what micro batches are cut by."""


class RankingObjective:
    """The recipe's loss over rows of documents.

    Args:
        recipe: names loss and precision.
        pipeline: of the training examples.
        examples: make the rows.
        chooser: scores single blocks for a learned selector; none: the model being trained.
    """

    def __init__(self, recipe: Recipe, pipeline: Pipeline, examples: Examples, chooser: RankerModule | None = None) -> None:
        self.loss = LOSSES[recipe.loss]
        self.precision = recipe.precision
        self.pipeline = pipeline
        self.examples = examples
        self.chooser = chooser

    def __call__(self, model: RankerModule, groups: Sequence[Group]) -> Tensor:
        """See Objective."""
        choose = self._choose(model)
        rows = [self.examples.rows(group.prepared, choose) for group in groups]
        scores = self._scores(model, [row for of_group in rows for row in of_group])
        return torch.stack([self.loss(of_group) for of_group in scores.split([len(of_group) for of_group in rows])]).mean()

    def cost(self, group: Group) -> int:
        """See Objective."""
        return group.tokens

    def _choose(self, model: RankerModule) -> Score:
        bf16 = in_bf16(self.precision, next(model.parameters()).device)
        return TorchModel(model, self.pipeline.tokenizer, bf16, self.chooser).choose

    def _scores(self, model: RankerModule, rows: list[Row]) -> Tensor:
        """Document scores of shape (rows, documents of a row)."""
        documents = [document for row in rows for document in row]
        device = next(model.parameters()).device
        counts = torch.tensor([len(document) for document in documents], device=device)
        with torch.autocast(device.type, torch.bfloat16, enabled=in_bf16(self.precision, device)):
            states = self._states(model, [packed for document in documents for packed in document], device)
            scores = model.documents(states, counts, self.pipeline.aggregator.name)
        return scores.float().view(len(rows), -1)

    def _states(self, model: RankerModule, sequences: list[Packed], device: torch.device) -> Tensor:
        """States (sequences, hidden), computed among sequences of like length: padding costs as much as tokens."""
        tokenizer, order, parts = self.pipeline.tokenizer, [], []
        how = tokenizer.pad_id, tokenizer.template.document_type
        for rows in length_batches([len(packed.ids) for packed in sequences], AT_ONCE[device.type]):
            parts.append(model.states(*model.inputs([sequences[row] for row in rows], *how)))
            order += rows
        return torch.cat(parts)[torch.tensor(order, device=device).argsort()]
