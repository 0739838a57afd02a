"""Pads packed sequences to tensors, for the trainer and for scoring with PyTorch."""

from collections.abc import Sequence
from typing import NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from keyblock.packing import Packed


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
