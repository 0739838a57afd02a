"""Base of rankers that compute a document's logit from its passages' states without the recipe's learned aggregator."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from keyblock.packing import Packed
from training.models.ranker_module import RankerModule


class Combining(RankerModule):
    """Base class of these families. A state is a row of features."""

    aggregator = None

    def inputs(self, sequences: Sequence[Packed], pad_id: int, document_type: int = 1) -> tuple[Tensor, ...]:
        """See RankerModule; the types separate query and passage, even if the encoder has one type only."""
        return super().inputs(sequences, pad_id, 1)

    @property
    def combines(self) -> bool:
        """See RankerModule."""
        return True

    def scores(self, states: Tensor) -> Tensor:
        """Logits of shape (...,) from features (..., width), each as the only passage of a document."""
        documents = states.reshape(-1, 1, states.shape[-1])
        mask = torch.ones(documents.shape[:2], dtype=torch.bool, device=states.device)
        return self.combine(documents, mask).reshape(states.shape[:-1])

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """See RankerModule."""
        with torch.autocast(states.device.type, enabled=False):
            return self.documents_of(states.float().masked_fill(~mask.unsqueeze(-1), 0.0), mask)

    @abstractmethod
    def documents_of(self, states: Tensor, mask: Tensor) -> Tensor:
        """Logits (docs,) from features (docs, passages, width) and the mask (docs, passages) of the real ones; padding is zero."""
