"""The ranker family that reads query and sentence apart: one encoder, mean pooling, cosine (Santos, section 3.2, equations 2 to 4).

A packed sequence ``[CLS] query [SEP] sentence [SEP]`` is split back into ``[CLS] query [SEP]`` and ``[CLS] sentence [SEP]``, so that
the ranker sees what sentence-transformers' models were trained on, and a sentence's vector does not depend on the query.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoConfig
from transformers.modeling_utils import PreTrainedModel

from keyblock.packing import Packed
from training.models.cross_encoder import read_encoder
from training.models.ranker_module import FAMILY_FILE, RankerModule, read_family
from training.models.transformer_ranker import ENCODER_WEIGHTS, TransformerRanker, one_clear_error, without_dropout


class Texts(NamedTuple):
    """Texts as the encoder reads them, in two (batch, length) integer tensors."""

    input_ids: Tensor
    attention_mask: Tensor


class BiEncoder(TransformerRanker):
    """Scores packed (query, sentence) sequences by the cosine of two vectors. A sequence's state is both of them, at length 1.

    Args:
        encoder: any encoder whose output has `last_hidden_state`.
        scale: of the logits.
    """

    aggregator = None
