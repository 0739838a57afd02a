"""Rankers that make a document's logit of its passages' states by themselves, without a learned aggregator of the recipe's."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from keyblock.packing import Packed
from training.models.ranker_module import RankerModule


class Combining(RankerModule):
    """What these families share: states are rows of features, whatever else the model is made of."""

    aggregator = None

    def inputs(self, sequences: Sequence[Packed], pad_id: int, document_type: int = 1) -> tuple[Tensor, ...]:
        """See RankerModule; the types tell passage from query even where the encoder has one type only."""
        return super().inputs(sequences, pad_id, 1)

    @property
    def combines(self) -> bool:
        """See RankerModule."""
        return True

    def scores(self, states: Tensor) -> Tensor:
        """Logits of shape (...,) from features (..., width): each as the only passage of its document."""
        alone = states.reshape(-1, 1, states.shape[-1])
        mask = torch.ones(alone.shape[:2], dtype=torch.bool, device=states.device)
        return self.combine(alone, mask).reshape(states.shape[:-1])

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """See RankerModule."""
        with torch.autocast(states.device.type, enabled=False):
            return self.documents_of(states.float().masked_fill(~mask.unsqueeze(-1), 0.0), mask)

    @abstractmethod
    def documents_of(self, states: Tensor, mask: Tensor) -> Tensor:
        """Logits (docs,) from features (docs, passages, width) and the mask (docs, passages) of the real ones; padding is zero."""
