"""The timed encoders: their sizes, and models with random weights, made without a model hub."""

from dataclasses import dataclass
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, BertConfig, PretrainedConfig, XLMRobertaConfig

from benchmarks.performance.limit import Encoder


@dataclass(frozen=True)
class Shape:
    """An encoder's sizes.

    Attributes:
        name: name of the part that times it.
        title: title on the page.
        layers, hidden, heads, intermediate, vocabulary: as in a Hugging Face configuration.
        roberta: whether the architecture is XLM-RoBERTa's, with its rerankers' head; else it is BERT's.
    """

    name: str
    title: str
    layers: int
    hidden: int
    heads: int
    intermediate: int
    vocabulary: int
    roberta: bool = False

    @property
    def encoder(self) -> Encoder:
        """The sizes that decide its operations."""
        return Encoder(self.layers, self.hidden, self.intermediate)

    def config(self, vocabulary: int | None = None) -> PretrainedConfig:
        """The Hugging Face configuration. The vocabulary does not change the cost."""
        sizes: dict[str, Any] = {
            "num_hidden_layers": self.layers,
            "hidden_size": self.hidden,
            "num_attention_heads": self.heads,
            "intermediate_size": self.intermediate,
            "vocab_size": vocabulary or self.vocabulary,
            "num_labels": 1,
        }
        return XLMRobertaConfig(**sizes, max_position_embeddings=514, type_vocab_size=1) if self.roberta else BertConfig(**sizes)

    def peer(self, dtype: torch.dtype, device: torch.device) -> torch.nn.Module:
        """A sequence classifier as users of transformers run it, with PyTorch's attention (SDPA) and random weights."""
        with device:
            model = AutoModelForSequenceClassification.from_config(self.config(), attn_implementation="sdpa", dtype=dtype)
        return model.to(device).eval()


SHAPES = (
    Shape("minilm-l6", "MiniLM-L6", 6, 384, 12, 1536, 30_522),
    Shape("bert-base", "BERT-base", 12, 768, 12, 3072, 30_522),
    Shape("xlm-r-base", "XLM-R-base", 12, 768, 12, 3072, 250_002, roberta=True),
)


def shape_of(name: str) -> Shape:
    """The shape of that name."""
    return next(shape for shape in SHAPES if shape.name == name)
