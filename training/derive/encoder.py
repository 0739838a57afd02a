"""How near texts are to a query by a sentence encoder."""

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray

from training.derive.answers import Near
from training.model.devices import in_bf16
from training.model.sentence_encoder import SentenceEncoder


def near_by_vectors(name: str) -> Near:
    """The cosine of each text's vector with the query's, by the encoder of this name: see Near."""
    encoder = SentenceEncoder(name)
    bf16 = in_bf16("auto", encoder.device)

    def near(query: str, texts: Sequence[str]) -> NDArray[np.float32]:
        with torch.autocast(encoder.device.type, torch.bfloat16, enabled=bf16):
            vectors = encoder.encode(encoder.rows([query, *texts]))
        scores: NDArray[np.float32] = vectors[1:] @ vectors[0]
        return scores

    return near
