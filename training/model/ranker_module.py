"""The interface of a ranker family for training, measurement and export: a PyTorch module that scores packed sequences."""

import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor, nn

from keyblock.aggregation import AGGREGATORS
from keyblock.packing import Packed
from training.model.aggregators import Aggregation


class Inputs(NamedTuple):
    """Three (batch, length) tensors, in the order of `RankerModule.INPUTS`."""

    input_ids: Tensor
    token_type_ids: Tensor
    attention_mask: Tensor

    def to(self, device: torch.device) -> Self:
        """Copy the tensors to a device."""
        return type(self)(*(tensor.to(device, non_blocking=True) for tensor in self))


def pad(sequences: Sequence[Packed], pad_id: int, document_type: int = 1) -> Inputs:
    """Pad on the right to the longest sequence; `document_type` is the type id of the second segment."""
    length = max(len(packed.ids) for packed in sequences)
    ids = np.full((len(sequences), length), pad_id, dtype=np.int64)
    types, mask = np.zeros_like(ids), np.zeros_like(ids)
    for row, packed in enumerate(sequences):
        n = len(packed.ids)
        ids[row, :n], types[row, packed.split : n], mask[row, :n] = packed.ids, document_type, 1
    return Inputs(torch.from_numpy(ids), torch.from_numpy(types), torch.from_numpy(mask))


FAMILY_FILE = "family.json"


class RankerModule(nn.Module, ABC):
    """A model of one family. It computes a state from a sequence, a logit from a state, and a document's logit from its states.

    Attributes:
        INPUTS: names of the integer tensors that `states` reads, each (batch, length).
        family: the recipe's `model`; a checkpoint keeps it in family.json.
        aggregator: combines the states of a document's passages, for a pipeline whose aggregator is ``states``.
    """

    INPUTS: ClassVar[tuple[str, ...]] = ("input_ids", "token_type_ids", "attention_mask")
    family: Mapping[str, Any]
    aggregator: Aggregation | None

    def save(self, directory: str | Path) -> None:
        """Write the family's name and settings, the weights, and all that is needed to rebuild the model. Creates the directory."""
        Path(directory).mkdir(parents=True, exist_ok=True)
        Path(directory, FAMILY_FILE).write_text(json.dumps(dict(self.family)), encoding="utf-8")
        self.save_weights(directory)

    @abstractmethod
    def save_weights(self, directory: str | Path) -> None:
        """Write the files that the family's `load` and `load_weights` read."""

    @abstractmethod
    def load_weights(self, directory: str | Path) -> None:
        """Load the weights that `save` wrote; this model's architecture must be the same."""

    @abstractmethod
    def start_from(self, directory: str | Path) -> None:
        """Take over the parts of another checkpoint of the family that fit this model. Raises ValueError for another encoder."""

    @abstractmethod
    def pretrained(self) -> Iterator[nn.Parameter]:
        """The parameters that do not start at random, and so learn at the encoder's rate."""

    @abstractmethod
    def checkpoint_activations(self) -> None:
        """From now on, compute activations twice instead of keeping them in memory."""

    @property
    def graph_inputs(self) -> tuple[str, ...]:
        """The INPUTS that a served graph has."""
        return self.INPUTS

    @property
    def combines(self) -> bool:
        """Whether the model computes a document's logit from its passages' states, as a pipeline's aggregator ``states`` needs."""
        return self.aggregator is not None

    @property
    @abstractmethod
    def max_length(self) -> int:
        """Tokens of the longest sequence that the model reads."""

    @property
    @abstractmethod
    def hidden_size(self) -> int:
        """The size of a state."""

    @property
    @abstractmethod
    def vocabulary_size(self) -> int:
        """The number of token ids that the model knows."""

    def inputs(self, sequences: Sequence[Packed], pad_id: int, document_type: int = 1) -> tuple[Tensor, ...]:
        """The arguments of `states` for packed sequences: a tensor for each of INPUTS, on the model's device; see `pad`."""
        return pad(sequences, pad_id, document_type).to(next(self.parameters()).device)

    @abstractmethod
    def states(self, *inputs: Tensor) -> Tensor:
        """States of shape (batch, hidden), in fp32, from the INPUTS."""

    @abstractmethod
    def scores(self, states: Tensor) -> Tensor:
        """Logits of shape (...,) from states (..., hidden), in fp32."""

    def outputs(self, *inputs: Tensor) -> Tensor:
        """The output of a served graph: logits (batch,); for a model that combines, (batch, 1 + hidden) with the logit first."""
        return self.with_logits(self.states(*inputs))

    def with_logits(self, states: Tensor) -> Tensor:
        """The output of `outputs`, computed from the states."""
        logits = self.scores(states)
        return torch.cat([logits.unsqueeze(-1), states], dim=1) if self.combines else logits

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """Document logits of shape (docs,) from states (docs, passages, hidden) and the mask (docs, passages) of the real ones."""
        if self.aggregator is None:
            raise ValueError("this model has no aggregator: it scores sequences, not their states")
        with torch.autocast(states.device.type, enabled=False):
            return self.aggregator.logits(states.float(), mask, self.scores)

    def forward(self, *inputs: Tensor) -> Tensor:
        """Logits of shape (batch,), each sequence scored alone."""
        return self.scores(self.states(*inputs))

    def documents(self, states: Tensor, counts: Tensor, reduction: str, weights: Tensor | None = None) -> Tensor:
        """Document logits of shape (docs,) from the states (sequences, hidden) of their sequences.

        Args:
            states: the states, document by document.
            counts: (docs,), how many consecutive sequences belong to each document; at least 1.
            reduction: the pipeline's aggregator, for a model without a learned one.
            weights: (sequences,), the weight of each sequence, if that aggregator weights them; None: equal weights.
        """
        mask = torch.arange(int(counts.max()), device=counts.device) < counts[:, None]
        if self.combines:
            return self.combine(padded(states, mask), mask)
        aggregator = AGGREGATORS.create(reduction)
        real = padded(weights, mask) if aggregator.weighted and weights is not None else mask
        logits: Tensor = aggregator.combine(padded(self.scores(states), mask), real, torch)
        return logits


def padded(values: Tensor, mask: Tensor) -> Tensor:
    """Distribute values (sequences, ...) to the True places of the mask (docs, passages), row by row; zeros elsewhere."""
    places = torch.zeros((*mask.shape, *values.shape[1:]), dtype=values.dtype, device=values.device)
    return places.masked_scatter(mask.view(*mask.shape, *(1 for _ in values.shape[1:])), values)
