"""Attention masks for tracing: the masks that transformers makes from a mask of real tokens, in operators that a graph can hold.

transformers' own code (`transformers.masking_utils`) branches on the mask's values, which a trace would freeze.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import PretrainedConfig

from training.model.transformer_ranker import FULL

Spell = Callable[[Tensor], Any]
LOWEST = torch.finfo(torch.float32).min


def spelled_masks(config: PretrainedConfig) -> Spell:
    """For a model of this configuration, the function from a mask (batch, length) to its `attention_mask` in a trace."""
    if config.model_type in MASKS:
        return MASKS[config.model_type](config)
    return unchanged


def unchanged(mask: Tensor) -> Tensor:
    """The mask itself: for architectures that make their masks by arithmetic alone (MPNet, DeBERTa), and for unknown ones."""
    return mask


def padding(mask: Tensor) -> Tensor:
    """The summand of the attention scores, (batch, 1, length, length): 0 for real tokens, LOWEST for padding.

    It uses the operators that ONNX Runtime's optimizer recognises.
    """
    batch, length = mask.shape
    hidden = 1.0 - mask[:, None, None, :].expand(batch, 1, length, length).to(torch.float32)
    return hidden.masked_fill(hidden.to(torch.bool), LOWEST)


def local(config: PretrainedConfig) -> Spell:
    """ModernBERT's masks: some layers see all tokens, the others those of a window."""
    reach = config.local_attention // 2

    def spell(mask: Tensor) -> dict[str, Tensor]:
        everywhere = padding(mask)
        places = torch.arange(mask.shape[1])
        far = (places[None, :] - places[:, None]).abs() > reach
        return {"full_attention": everywhere, "sliding_attention": everywhere.masked_fill(far[None, None], LOWEST)}

    return spell


def causal(_: PretrainedConfig) -> Spell:
    """A decoder's mask: no token sees later tokens."""

    def spell(mask: Tensor) -> dict[str, Tensor]:
        places = torch.arange(mask.shape[1])
        later = places[None, :] > places[:, None]
        return {"full_attention": padding(mask).masked_fill(later[None, None], LOWEST)}

    return spell


def everywhere(_: PretrainedConfig) -> Spell:
    """An encoder's mask: every token sees every other."""
    return padding


MASKS: dict[str, Callable[[PretrainedConfig], Spell]] = {
    **dict.fromkeys(FULL, everywhere),
    "modernbert": local,
    **dict.fromkeys(("qwen2", "qwen3"), causal),
}
"""Masks by transformers' name of the architecture."""
