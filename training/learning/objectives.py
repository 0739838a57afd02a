"""From groups to a loss: what a step minimises.

A ranking loss takes scores of shape (groups, 1 + negatives), the relevant document first, and gives a scalar.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from keyblock.packing import Packed, weights_of
from keyblock.pipeline import Pipeline
from keyblock.scoring import Score
from training.evaluation.scoring import TorchModel, length_batches
from training.examples.examples import Examples
from training.examples.marking import LEFT_OUT, Labels
from training.examples.sampling import Group
from training.models.arithmetic import in_bf16
from training.models.cross_encoder import CrossEncoder
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


def pointwise(scores: Tensor, answered: bool = True) -> Tensor:
    """Mean over documents of the cross-entropy of relevant or not (BeST section 4, for collections of few queries).

    Args:
        scores: shape (groups, documents).
        answered: whether the first document is relevant; else none is.
    """
    labels = torch.zeros_like(scores)
    labels[:, 0] = float(answered)
    return F.binary_cross_entropy_with_logits(scores, labels)


def token_loss(marks: Tensor, labels: Sequence[Labels]) -> Tensor:
    """Cross-entropy of the tokens that answer: the mean over those of documents with a gold passage, and over those without.

    Both halves count alike: of a group's documents one has an answer, and its tokens would be lost among the others'.

    Args:
        marks: logits, shape (sequences, length).
        labels: of each sequence, see `training.examples.marking`.
    """
    padded = np.full(tuple(marks.shape), LEFT_OUT, np.int8)
    for row, of_sequence in enumerate(labels):
        padded[row, : len(of_sequence)] = of_sequence
    target = torch.from_numpy(padded).to(marks.device)
    losses = F.binary_cross_entropy_with_logits(marks, target.clamp(min=0).to(marks.dtype), reduction="none")
    gold, counted = (target == 1).any(dim=1, keepdim=True), target != LEFT_OUT
    halves = [losses[counted & of_gold] for of_gold in (gold, ~gold)]
    return torch.stack([half.mean() for half in halves if len(half)] or [marks.sum() * 0]).mean()


LOSSES: dict[str, Loss] = {"hinge": hinge, "listwise": listwise, "logistic": logistic, "pointwise": pointwise}
"""By the names that training.declarations gives them."""


AT_ONCE = {"cpu": 2048, "cuda": 32768}  # tokens: where more would be no faster, a batch has less padding


class Objective(Protocol):
    """What the loop minimises."""

    def __call__(self, model: RankerModule, groups: Sequence[Group]) -> Tensor:
        """The mean loss of the groups, a scalar."""

    def cost(self, group: Group) -> int:
        """Tokens that a group sends through the model with gradients, at most: what micro batches are cut by."""


class Frozen(NamedTuple):
    """A group, as an encoder that does not learn sees it.

    Attributes:
        states: (sequences, hidden), document by document, in fp32.
        counts: (documents,), sequences of each.
        weights: (sequences,), see `keyblock.packing.Packed`.
        rows: that the documents are dealt out to evenly.
        answered: whether the first document is relevant; else none is.
    """

    states: Tensor
    counts: Tensor
    weights: Tensor
    rows: int
    answered: bool


class RankingObjective:
    """The recipe's loss over rows of documents.

    Args:
        recipe: names loss and precision.
        pipeline: of the training examples.
        examples: make the rows.
        chooser: scores single blocks for a learned selector; none: the model being trained.
    """

    def __init__(self, recipe: Recipe, pipeline: Pipeline, examples: Examples, chooser: RankerModule | None = None) -> None:
        self.loss, self.pointwise, self.marks = LOSSES[recipe.loss], recipe.pointwise, recipe.marks
        self.precision = recipe.precision
        self.pipeline = pipeline
        self.examples = examples
        self.chooser = chooser

    def __call__(self, model: RankerModule, groups: Sequence[Group]) -> Tensor:
        """See Objective."""
        rows = self._rows(model, groups)
        scores, marks = self._scores(model, [document for of_group in rows for row in of_group for document in row])
        sizes = [sum(map(len, of_group)) for of_group in rows]
        of_groups = zip(groups, rows, scores.split(sizes), strict=True)
        losses = [self._loss(group.answered, of_group.view(len(of_rows), -1)) for group, of_rows, of_group in of_groups]
        loss = torch.stack(losses).mean()
        if marks is None:
            return loss
        return loss + self.marks * token_loss(marks, [labels for group in groups for labels in group.labels])

    def frozen(self, model: RankerModule, groups: Sequence[Group]) -> list["Frozen"]:
        """The groups' states by the model as it is, without gradients."""
        device, found = next(model.parameters()).device, []
        with torch.no_grad(), self._arithmetic(device):
            for group, rows in zip(groups, self._rows(model, groups), strict=True):
                documents = [document for row in rows for document in row]
                packed = [one for document in documents for one in document]
                states, _ = self._states(model, packed, device)
                counts = torch.tensor([len(document) for document in documents], device=device)
                weights = torch.from_numpy(weights_of(packed)).to(device)
                found.append(Frozen(states.float(), counts, weights, len(rows), group.answered))
        return found

    def loss_of_frozen(self, model: RankerModule, groups: Sequence["Frozen"]) -> Tensor:
        """The mean loss of groups whose states are known, a scalar."""
        together = (torch.cat([getattr(group, part) for group in groups]) for part in ("states", "counts", "weights"))
        scores = self._of_documents(model, *together).split([len(group.counts) for group in groups])
        losses = [self._loss(group.answered, of.view(group.rows, -1)) for group, of in zip(groups, scores, strict=True)]
        return torch.stack(losses).mean()

    def _rows(self, model: RankerModule, groups: Sequence[Group]) -> list[list[list[list[Packed]]]]:
        """Of each group its rows of documents, each given by its sequences."""
        choose = self._choose(model)
        return [self.examples.rows(group.prepared, choose) for group in groups]

    def _loss(self, answered: bool, scores: Tensor) -> Tensor:
        """Of a group's scores (rows, documents of a row)."""
        loss = self.loss(scores) if answered else scores.new_zeros(())
        return loss + self.pointwise * pointwise(scores, answered=answered) if self.pointwise else loss

    def cost(self, group: Group) -> int:
        """See Objective."""
        return group.tokens

    def _choose(self, model: RankerModule) -> Score:
        bf16 = in_bf16(self.precision, next(model.parameters()).device)
        return TorchModel(model, self.pipeline.tokenizer, bf16, self.chooser).choose

    def _scores(self, model: RankerModule, documents: list[list[Packed]]) -> tuple[Tensor, Tensor | None]:
        """Document scores of shape (documents,), and what `_read` gives of the tokens of their sequences."""
        device = next(model.parameters()).device
        packed = [one for document in documents for one in document]
        counts = torch.tensor([len(document) for document in documents], device=device)
        weights = torch.from_numpy(weights_of(packed)).to(device)
        with self._arithmetic(device):
            states, tokens = self._states(model, packed, device)
            scores = self._of_documents(model, states, counts, weights)
        return scores.float(), tokens

    def _arithmetic(self, device: torch.device) -> torch.autocast:
        return torch.autocast(device.type, torch.bfloat16, enabled=in_bf16(self.precision, device))

    def _of_documents(self, model: RankerModule, states: Tensor, counts: Tensor, weights: Tensor) -> Tensor:
        """Document scores (documents,) from the states of their sequences; see RankerModule.documents."""
        return model.documents(states, counts, self.pipeline.aggregator.name, weights)

    def _states(self, model: RankerModule, sequences: list[Packed], device: torch.device) -> tuple[Tensor, Tensor | None]:
        """What `_read` gives of all, computed among sequences of like length: padding costs as much as tokens."""
        tokenizer, order, parts, tokens = self.pipeline.tokenizer, [], [], []
        how, longest = (tokenizer.pad_id, tokenizer.template.document_type), max(len(packed.ids) for packed in sequences)
        for rows in length_batches([len(packed.ids) for packed in sequences], AT_ONCE[device.type]):
            states, of_tokens = self._read(model, model.inputs([sequences[row] for row in rows], *how))
            if of_tokens is not None:
                tokens.append(F.pad(of_tokens, (0, 0) * (of_tokens.ndim - 2) + (0, longest - of_tokens.shape[1])))
            parts.append(states)
            order += rows
        back = torch.tensor(order, device=device).argsort()
        return torch.cat(parts)[back], torch.cat(tokens)[back] if tokens else None

    def _read(self, model: RankerModule, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor | None]:
        """States (batch, hidden) of sequences, and what is learned of their tokens (batch, length, ...): a marker's logits."""
        if self.marks and isinstance(model, CrossEncoder):
            return model.marked(*inputs)
        return model.states(*inputs), None
