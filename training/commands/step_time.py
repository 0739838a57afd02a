"""Measures a training step on this machine: some tokens go through an encoder of the backbone's sizes, forward and backward."""

import time

import torch
from transformers import AutoConfig, AutoModel, PretrainedConfig, PreTrainedModel

from training.learning.train import fastest_attention
from training.models.arithmetic import in_bf16
from training.models.devices import fastest_device
from training.models.reshaping import keep_layers
from training.recipe import Recipe, backbone_path

TOKENS = 512  # of a try, about: it takes a second or a few on a CPU
TRIES = 2  # the faster one counts, since the first allocates memory


def seconds_per_token(recipe: Recipe, length: int) -> float:
    """Seconds per token of a step with sequences of `length` tokens, without the optimizer's update.

    Reads no weights and downloads nothing.
    """
    device = fastest_device()
    config = AutoConfig.from_pretrained(backbone_path(recipe.backbone), local_files_only=True)
    model = _encoder(config, fastest_attention(device))
    if recipe.reshape:
        keep_layers(model, recipe.reshape.kept)
    model.to(device).train()
    ids = torch.randint(config.vocab_size, (max(1, TOKENS // length), length), device=device)
    return min(_seconds(model, ids, in_bf16(recipe.precision, device)) for _ in range(TRIES)) / ids.numel()


def _encoder(config: PretrainedConfig, attention: str) -> PreTrainedModel:
    """An encoder with random weights and this attention, or with its default attention if it does not support it."""
    try:
        return AutoModel.from_config(config, attn_implementation=attention)
    except ValueError:
        return AutoModel.from_config(config)


def _seconds(model: PreTrainedModel, ids: torch.Tensor, bf16: bool) -> float:
    started = time.perf_counter()
    with torch.autocast(ids.device.type, torch.bfloat16, enabled=bf16):
        states = model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
    states.float().square().mean().backward()
    if ids.device.type == "cuda":
        torch.cuda.synchronize()
    return time.perf_counter() - started
