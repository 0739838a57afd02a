"""Computes the loss of groups, which a step minimises.

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
from keyblock.scoring import ScoreSequences
from training.data.examples import LEFT_OUT, Examples, Labels
from training.data.sampling import Group
from training.evaluate.scoring import TorchModel, length_batches
from training.model.cross_encoder import CrossEncoder
from training.model.devices import in_bf16
from training.model.ranker_module import RankerModule
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
    """Mean over documents of the binary cross-entropy of relevance (BeST section 4, for collections of few queries).

    Args:
        scores: shape (groups, documents).
        answered: whether the first document is relevant; else no document is.
    """
    labels = torch.zeros_like(scores)
    labels[:, 0] = float(answered)
    return F.binary_cross_entropy_with_logits(scores, labels)


def token_loss(marks: Tensor, labels: Sequence[Labels]) -> Tensor:
    """Cross-entropy of token marks: the mean over sequences with gold tokens and the mean over those without, averaged.

    Both means count the same, since only one document of a group has an answer: in one mean its tokens would hardly count.

    Args:
        marks: logits, shape (sequences, length).
        labels: the labels of each sequence, see `training.data.examples`.
    """
    padded = np.full(tuple(marks.shape), LEFT_OUT, np.int8)
    for row, sequence_labels in enumerate(labels):
        padded[row, : len(sequence_labels)] = sequence_labels
    target = torch.from_numpy(padded).to(marks.device)
    losses = F.binary_cross_entropy_with_logits(marks, target.clamp(min=0).to(marks.dtype), reduction="none")
    gold, counted = (target == 1).any(dim=1, keepdim=True), target != LEFT_OUT
    halves = [losses[counted & rows] for rows in (gold, ~gold)]
    return torch.stack([half.mean() for half in halves if len(half)] or [marks.sum() * 0]).mean()


LOSSES: dict[str, Loss] = {"hinge": hinge, "listwise": listwise, "logistic": logistic, "pointwise": pointwise}
"""The losses by their names in training.declarations."""


AT_ONCE = {"cpu": 2048, "cuda": 32768}  # tokens of a batch: larger ones are no faster, and have more padding


class Objective(Protocol):
    """The loss that the loop minimises."""

    def __call__(self, model: RankerModule, groups: Sequence[Group]) -> Tensor:
        """The mean loss of the groups, a scalar."""

    def cost(self, group: Group) -> int:
        """Upper bound of the tokens that a group sends through the model with gradients; it decides the micro batches."""


class Frozen(NamedTuple):
    """A group's states from a frozen encoder.

    Attributes:
        states: (sequences, hidden), document by document, in fp32.
        counts: (documents,), sequences of each document.
        weights: (sequences,), see `keyblock.packing.Packed`.
        rows: the number of rows; each has the same number of documents.
        answered: whether the first document is relevant; else no document is.
    """

    states: Tensor
    counts: Tensor
    weights: Tensor
    rows: int
    answered: bool


class RankingObjective:
    """The recipe's loss over rows of documents.

    Args:
        recipe: gives loss and precision.
        pipeline: the pipeline of the training examples.
        examples: makes the rows.
        chooser: scores single blocks for a learned selector; None: the model in training does.
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
        scores, marks = self._scores(model, [document for group_rows in rows for row in group_rows for document in row])
        sizes = [sum(map(len, group_rows)) for group_rows in rows]
        parts = zip(groups, rows, scores.split(sizes), strict=True)
        losses = [self._loss(group.answered, part.view(len(group_rows), -1)) for group, group_rows, part in parts]
        loss = torch.stack(losses).mean()
        if marks is None:
            return loss
        return loss + self.marks * token_loss(marks, [labels for group in groups for labels in group.labels])

    def frozen(self, model: RankerModule, groups: Sequence[Group]) -> list["Frozen"]:
        """The groups' states by the present model, without gradients."""
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

    def frozen_loss(self, model: RankerModule, groups: Sequence["Frozen"]) -> Tensor:
        """The mean loss of groups whose states are computed already, a scalar."""
        joined = (torch.cat([getattr(group, part) for group in groups]) for part in ("states", "counts", "weights"))
        scores = self._document_scores(model, *joined).split([len(group.counts) for group in groups])
        losses = [self._loss(group.answered, part.view(group.rows, -1)) for group, part in zip(groups, scores, strict=True)]
        return torch.stack(losses).mean()

    def _rows(self, model: RankerModule, groups: Sequence[Group]) -> list[list[list[list[Packed]]]]:
        """The rows of each group: lists of documents, each a list of sequences."""
        choose = self._choose(model)
        return [self.examples.rows(group.prepared, choose) for group in groups]

    def _loss(self, answered: bool, scores: Tensor) -> Tensor:
        """The loss of a group's scores, shape (rows, documents in a row)."""
        loss = self.loss(scores) if answered else scores.new_zeros(())
        return loss + self.pointwise * pointwise(scores, answered=answered) if self.pointwise else loss

    def cost(self, group: Group) -> int:
        """See Objective."""
        return group.tokens

    def _choose(self, model: RankerModule) -> ScoreSequences:
        bf16 = in_bf16(self.precision, next(model.parameters()).device)
        return TorchModel(model, self.pipeline.tokenizer, bf16, self.chooser).choose

    def _scores(self, model: RankerModule, documents: list[list[Packed]]) -> tuple[Tensor, Tensor | None]:
        """Document scores of shape (documents,), and the second result of `_read` for their sequences."""
        device = next(model.parameters()).device
        packed = [one for document in documents for one in document]
        counts = torch.tensor([len(document) for document in documents], device=device)
        weights = torch.from_numpy(weights_of(packed)).to(device)
        with self._arithmetic(device):
            states, tokens = self._states(model, packed, device)
            scores = self._document_scores(model, states, counts, weights)
        return scores.float(), tokens

    def _arithmetic(self, device: torch.device) -> torch.autocast:
        return torch.autocast(device.type, torch.bfloat16, enabled=in_bf16(self.precision, device))

    def _document_scores(self, model: RankerModule, states: Tensor, counts: Tensor, weights: Tensor) -> Tensor:
        """Document scores (documents,) from the states of their sequences; see RankerModule.documents."""
        return model.documents(states, counts, self.pipeline.aggregator.name, weights)

    def _states(self, model: RankerModule, sequences: list[Packed], device: torch.device) -> tuple[Tensor, Tensor | None]:
        """The results of `_read` for all sequences, in batches of similar length, since padding costs as much as tokens."""
        tokenizer, order, parts, tokens = self.pipeline.tokenizer, [], [], []
        ids, longest = (tokenizer.pad_id, tokenizer.template.document_type), max(len(packed.ids) for packed in sequences)
        for rows in length_batches([len(packed.ids) for packed in sequences], AT_ONCE[device.type]):
            states, by_token = self._read(model, model.inputs([sequences[row] for row in rows], *ids))
            if by_token is not None:
                tokens.append(F.pad(by_token, (0, 0) * (by_token.ndim - 2) + (0, longest - by_token.shape[1])))
            parts.append(states)
            order += rows
        back = torch.tensor(order, device=device).argsort()
        return torch.cat(parts)[back], torch.cat(tokens)[back] if tokens else None

    def _read(self, model: RankerModule, inputs: tuple[Tensor, ...]) -> tuple[Tensor, Tensor | None]:
        """States (batch, hidden) of sequences and, if marks are learned, the marker's logits of their tokens (batch, length)."""
        if self.marks and isinstance(model, CrossEncoder):
            return model.marked(*inputs)
        return model.states(*inputs), None
