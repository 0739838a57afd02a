"""Scoring candidates with a PyTorch model: the dev measurements of a run, and the reference that an export is held to."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from keyblock.packing import Packed
from training.batching import pad
from training.model import CrossEncoder


def score(
    model: CrossEncoder,
    sequences: Sequence[Packed],
    pad_id: int,
    bf16: bool = True,
    batch_tokens: int = 8192,
    document_type: int = 1,
) -> NDArray[np.float32]:
    """Logits of shape (n_sequences,), in the order given; scored in batches of similar length."""
    device = next(model.parameters()).device
    logits = np.zeros(len(sequences), dtype=np.float32)
    was_training = model.training
    model.eval()
    with torch.inference_mode(), torch.autocast(device.type, torch.bfloat16, enabled=bf16):
        for rows in length_batches([len(packed.ids) for packed in sequences], batch_tokens):
            inputs = pad([sequences[row] for row in rows], pad_id, document_type).to(device)
            logits[rows] = model(*inputs).float().cpu().numpy()
    model.train(was_training)
    return logits


def length_batches(lengths: Sequence[int], batch_tokens: int) -> Iterator[list[int]]:
    """Row numbers, longest first, so that rows x longest stays under `batch_tokens` (one row at the least)."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    while order:
        rows = max(1, batch_tokens // lengths[order[0]])
        yield order[:rows]
        order = order[rows:]
