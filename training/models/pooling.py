"""Pooling: reduces the states of a sequence's tokens to the one state that a ranker's linear layer reads."""

from collections.abc import Callable

import torch
from torch import Tensor

Pool = Callable[[Tensor, Tensor], Tensor]
"""A function of states (batch, length, hidden) and the mask (batch, length) of real tokens, padding last, to (batch, hidden)."""


def first(states: Tensor, _: Tensor) -> Tensor:
    """The state of [CLS]."""
    return states[:, 0]


def mean(states: Tensor, mask: Tensor) -> Tensor:
    """The mean over the real tokens, special tokens included."""
    real = mask.unsqueeze(-1).to(states.dtype)
    return (states * real).sum(1) / real.sum(1)


def last(states: Tensor, mask: Tensor) -> Tensor:
    """The state of the last real token: in a decoder the only one that has read all tokens."""
    starts = torch.arange(mask.shape[0], device=mask.device) * mask.shape[1]
    return states.flatten(0, 1).index_select(
        0, starts + mask.sum(1) - 1
    )  # (batch x length, hidden): an exported graph keeps the width


POOLINGS: dict[str, Pool] = {"cls": first, "mean": mean, "last": last}
"""The poolings, by their names in training.declarations.CrossEncoderFamily."""
