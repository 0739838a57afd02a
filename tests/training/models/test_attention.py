"""The CPU attention against PyTorch's own, alone and, forward and backward, inside an encoder."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from training.model import attention
from training.model.checkpoints import latest
from training.model.cross_encoder import CrossEncoder

BATCH, HEADS, LENGTH, WIDTH = 3, 2, 7, 8
LENGTHS = torch.tensor([7, 4, 1])  # tokens of each row; the rest is padding on the right
FORBIDDEN = torch.finfo(torch.float32).min


def inputs() -> list[Tensor]:
    """Query, key, value and one more."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(BATCH, HEADS, LENGTH, WIDTH, generator=generator) for _ in range(4)]


def bias(shape: str) -> Tensor | None:
    """An additive mask: 0 where a token may look, hugely negative on padding."""
    if shape == "none":
        return None
    padded = torch.arange(LENGTH) >= LENGTHS[:, None]
    row = torch.zeros(BATCH, LENGTH).masked_fill(padded, FORBIDDEN)[:, None, None, :]
    return row.expand(-1, -1, LENGTH, -1) if shape == "full" else row


def torchs(query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None) -> Tensor:
    return F.scaled_dot_product_attention(query, key, value, attn_mask=mask)


@pytest.mark.parametrize("shape", ["none", "row", "full"])
def test_what_transformers_is_given(shape: str) -> None:
    query, key, value, _ = inputs()
    mixed, weights = attention.attention(torch.nn.Identity(), query, key, value, bias(shape), scaling=0.3)
    expected = F.scaled_dot_product_attention(query, key, value, attn_mask=bias(shape), scale=0.3)
    assert weights is None
    torch.testing.assert_close(mixed, expected.transpose(1, 2), rtol=1e-5, atol=1e-6)
    assert mixed.is_contiguous()


def test_a_decoders_shared_keys_and_values_are_those_of_neighbouring_heads() -> None:
    """Four heads of queries on two of keys and values: heads 0 and 1 read the first, 2 and 3 the second, as in eager attention."""
    query, more, key, value = inputs()
    four = torch.cat([query, more], dim=1)
    mixed, _ = attention.attention(torch.nn.Identity(), four, key, value, bias("full"))
    for head in range(2 * HEADS):
        alone = (four[:, head : head + 1], *(of[:, head // 2 : head // 2 + 1] for of in (key, value)))
        torch.testing.assert_close(mixed[:, :, head], torchs(*alone, bias("full"))[:, 0], rtol=1e-5, atol=1e-6)


def test_dropout_is_torchs() -> None:
    query, key, value, _ = inputs()
    torch.manual_seed(3)
    mixed, _ = attention.attention(torch.nn.Identity(), query, key, value, None, dropout=0.5)
    torch.manual_seed(3)
    expected = F.scaled_dot_product_attention(query, key, value, dropout_p=0.5)
    torch.testing.assert_close(mixed, expected.transpose(1, 2))
    assert not torch.allclose(mixed, torchs(query, key, value, None).transpose(1, 2))


def logits_and_gradients(run: Path, name: str) -> tuple[Tensor, dict[str, Tensor]]:
    """Of a trained encoder: a random one attends evenly to everything."""
    model = CrossEncoder.load(latest(run), attention=name)
    ids = torch.randint(1000, 2000, (3, 12), generator=torch.Generator().manual_seed(2))
    mask = (torch.arange(12) < torch.tensor([[12], [7], [3]])).long()
    logits = model(ids * mask, torch.zeros_like(ids), mask)
    logits.square().sum().backward()
    return logits.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


def test_a_whole_encoder_computes_and_learns_the_same(toy_run: Path) -> None:
    mine, my_gradients = logits_and_gradients(toy_run, attention.NAME)
    theirs, their_gradients = logits_and_gradients(toy_run, "sdpa")
    torch.testing.assert_close(mine, theirs, rtol=1e-5, atol=1e-6)
    assert my_gradients.keys() == their_gradients.keys()
    for name, gradient in my_gradients.items():
        # a gradient's rounding errors are of the size of its largest value; that of the keys' bias is 0 but for them
        rounding = max(1e-5 * float(gradient.abs().max()), 1e-5)
        torch.testing.assert_close(gradient, their_gradients[name], rtol=0, atol=rounding, msg=name)


def test_under_autocast_an_encoder_stays_near_fp32(toy_run: Path) -> None:
    exact, gradients = logits_and_gradients(toy_run, attention.NAME)
    with torch.autocast("cpu", torch.bfloat16):
        near, low = logits_and_gradients(toy_run, attention.NAME)
    torch.testing.assert_close(near.float(), exact, rtol=0.05, atol=0.02)
    whole, rough = (torch.cat([g.float().flatten() for g in which.values()]) for which in (gradients, low))
    assert F.cosine_similarity(whole, rough, 0) > 0.99
