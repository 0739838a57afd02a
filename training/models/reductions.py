"""Score-level aggregation with gradients: what `keyblock.aggregation` does in serving, for training through it."""

from collections.abc import Callable

import torch
from torch import Tensor

_LOWEST = -1e9  # below any logit, and finite: -inf times a gradient of 0 is not a number

REDUCTIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "joint": lambda logits, _mask: logits[:, 0],
    "max": lambda logits, mask: logits.masked_fill(~mask, _LOWEST).amax(1),
    "mean": lambda logits, mask: logits.masked_fill(~mask, 0.0).sum(1) / mask.sum(1),
    "sum": lambda logits, mask: logits.masked_fill(~mask, 0.0).sum(1),
}
"""By the aggregator's name: logits and mask of shape (docs, passages), each document with a passage, to (docs,)."""


def reduce_scores(aggregator: str, logits: Tensor, mask: Tensor) -> Tensor:
    """Document logits of shape (docs,) from those of its sequences and a mask of the real ones, both (docs, passages)."""
    return REDUCTIONS[aggregator](logits, mask)


def padded(values: Tensor, mask: Tensor) -> Tensor:
    """Values of shape (sequences, ...), dealt out to the mask's places (docs, passages) row by row; zeros elsewhere."""
    places = torch.zeros((*mask.shape, *values.shape[1:]), dtype=values.dtype, device=values.device)
    return places.masked_scatter(mask.view(*mask.shape, *(1 for _ in values.shape[1:])), values)
