"""Attention for training on a CPU: batched matrix products in the input's precision, with a hand-written backward.

The backward pass of PyTorch's fused CPU attention takes half of a whole bf16 training step. At the lengths trained here (up to
512), materialising the probabilities costs little and is several times as fast.
It is registered with transformers as ``keyblock_cpu``; `tests/training/models/test_attention.py` compares it with PyTorch's own.
"""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import AttentionInterface
from transformers.masking_utils import AttentionMaskInterface, eager_mask

NAME = "keyblock_cpu"


class BatchedAttention(torch.autograd.Function):
    """``softmax(q k^T * scale + bias) v`` over flattened heads."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor, bias: Tensor | None, scale: float) -> Tensor:
        """Args: query, key, value (batch, heads, length, width); bias broadcasts to (batch, heads, length, length) or is None."""
        batch, heads, length, width = query.shape
        q, k, v = ((t.reshape(-1, t.shape[2], width)) for t in (query, key, value))
        scores = torch.bmm(q * scale, k.transpose(1, 2)).view(batch, heads, length, -1)
        if bias is not None:
            scores += bias
        probabilities = F.softmax(scores, -1, dtype=scores.dtype).view(batch * heads, length, -1)
        ctx.save_for_backward(q, k, v, probabilities)
        ctx.scale, ctx.shape = scale, query.shape
        return torch.bmm(probabilities, v).view(query.shape)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """The textbook gradients; bias and scale have none."""
        q, k, v, probabilities = ctx.saved_tensors
        output = gradients[0].reshape(q.shape)
        of_value = torch.bmm(probabilities.transpose(1, 2), output)
        of_probabilities = torch.bmm(output, v.transpose(1, 2))
        of_scores = torch._softmax_backward_data(of_probabilities, probabilities, -1, probabilities.dtype) * ctx.scale
        of_query, of_key = torch.bmm(of_scores, k), torch.bmm(of_scores.transpose(1, 2), q)
        return of_query.view(ctx.shape), of_key.view(ctx.shape), of_value.view(ctx.shape), None, None


def attention(
    _module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **_: Any,
) -> tuple[Tensor, None]:
    """The function that transformers calls. Returns (batch, length, heads, width), and None in place of the attention weights.

    In a decoder with fewer heads of keys and values, several neighbouring heads share each of them.
    """
    if (shared := query.shape[1] // key.shape[1]) > 1:
        key, value = (tensor.repeat_interleave(shared, dim=1) for tensor in (key, value))
    scale = scaling if scaling is not None else query.shape[-1] ** -0.5
    bias = None if attention_mask is None else attention_mask.to(query.dtype)
    if dropout:
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=bias, dropout_p=dropout, scale=scale)
    else:
        mixed = BatchedAttention.apply(query, key, value, bias, scale)
    return mixed.transpose(1, 2).contiguous(), None


AttentionInterface.register(NAME, attention)
AttentionMaskInterface.register(NAME, eager_mask)
