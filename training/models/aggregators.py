"""Learned aggregators over the [CLS] states of a document's passages (PARADE, Li et al. 2020, section 3.3; KeyB section 4.2).

Each turns states of shape (documents, passages, hidden) into one vector a document, which the ranker's own linear layer scores. A
mask says which passages are real, and padding behind them never changes a result: it is neither averaged nor attended to, and no
floor of a maximum. A document without any passage gets zeros.
"""

from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModel, BertConfig
from transformers.models.bert.modeling_bert import BertLayer

from keyblock.registry import Component, Registry

STD = 0.02  # of random weights, as in BERT


class Aggregation(nn.Module):
    """From passages to a document.

    Attributes:
        description: what `AGGREGATORS` rebuilds the module from, with no other file; the weights are loaded over it.
        pretrained: parameters that do not start at random: they learn at the encoder's rate.
    """

    def __init__(self, description: dict[str, Any]) -> None:
        super().__init__()
        self.description = description
        self.pretrained: list[nn.Parameter] = []

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Document states (docs, hidden).

        Args:
            states: (docs, passages, hidden), in document order; what padding holds is not read.
            mask: (docs, passages) bool, True for real passages; padding stands behind them.
        """
        states = states.masked_fill(~mask.unsqueeze(-1), 0.0)
        states, real = F.pad(states, (0, 0, 0, 1)), F.pad(mask, (0, 1))  # so that there is always a passage: none would be an error
        return self.combine(states, real).masked_fill(~real.any(1, keepdim=True), 0.0)

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """Document states (docs, hidden); padding is zero, and anything goes for a document that is all padding, but NaN."""
        raise TypeError(f"{type(self).__name__} does not say how it combines")


class StateAggregator(Component):
    """A learned aggregator's settings."""

    def build(self, hidden: int) -> Aggregation:
        """A module for [CLS] states of this size, with fresh weights. Raises ValueError where the settings do not fit it."""
        raise TypeError(f"{type(self).__name__} does not say what it builds")


AGGREGATORS: Registry[StateAggregator] = Registry("learned aggregator")


class MaxAggregation(Aggregation):
    """See Max."""

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """See Aggregation."""
        return states.masked_fill(~mask.unsqueeze(-1), torch.finfo(states.dtype).min).amax(1)


@AGGREGATORS.register("max")
class Max(StateAggregator):
    """PARADE-Max (equation 2): the largest value of each feature."""

    def build(self, hidden: int) -> Aggregation:
        """See StateAggregator."""
        return MaxAggregation(self.describe())


class AverageAggregation(Aggregation):
    """See Average."""

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """See Aggregation."""
        return states.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


@AGGREGATORS.register("average")
class Average(StateAggregator):
    """PARADE-Avg: the mean over the real passages."""

    def build(self, hidden: int) -> Aggregation:
        """See StateAggregator."""
        return AverageAggregation(self.describe())


class AttentionAggregation(Aggregation):
    """See Attention."""

    def __init__(self, description: dict[str, Any], hidden: int) -> None:
        super().__init__(description)
        self.weight = nn.Parameter(torch.randn(hidden) * STD)

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """See Aggregation."""
        scores = states @ self.weight  # (docs, passages)
        shares = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(1)
        return (shares.unsqueeze(1) @ states).squeeze(1)


@AGGREGATORS.register("attention")
class Attention(StateAggregator):
    """PARADE-Attn (equations 3 and 4): a mean weighted by the softmax of the passages' products with one learned vector."""

    def build(self, hidden: int) -> Aggregation:
        """See StateAggregator."""
        return AttentionAggregation(self.describe(), hidden)


class CnnAggregation(Aggregation):
    """See Cnn."""

    def __init__(self, description: dict[str, Any], hidden: int, layers: int) -> None:
        super().__init__(description)
        self.layers = nn.ModuleList(nn.Conv1d(hidden, hidden, kernel_size=2, stride=2) for _ in range(layers))
        self.dense = nn.Linear(hidden, hidden)

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """See Aggregation."""
        spare = 2 ** len(self.layers) - 1  # an odd one out is paired with zeros; what even this leaves over is padding
        states = F.pad(states, (0, 0, 0, spare))
        real = F.pad(mask, (0, spare)).unsqueeze(1).to(states.dtype)  # (docs, 1, passages)
        level, total = states.transpose(1, 2), torch.zeros_like(states[:, 0])
        for layer in self.layers:
            real = F.max_pool1d(real, kernel_size=2, stride=2)
            level = layer(level).relu() * real
            total = total + (self.dense(level.transpose(1, 2)).relu() * real.transpose(1, 2)).sum(1)
        return total


@AGGREGATORS.register("cnn")
class Cnn(StateAggregator):
    """PARADE-CNN: layers over pairs of neighbours, each halving their number.

    Every representation of every layer goes through a hidden layer and is summed; under the ranker's linear layer this is the
    paper's sum of the scores that a feed-forward network with one hidden layer gives them (section 3.4).
    """

    layers: int = Field(4, ge=1, le=10, description="each halves the number of passages; 4 reach from 16 passages to one")

    def build(self, hidden: int) -> Aggregation:
        """See StateAggregator."""
        return CnnAggregation(self.describe(), hidden, self.layers)


class TransformerAggregation(Aggregation):
    """See Transformer."""

    def __init__(self, description: dict[str, Any], config: BertConfig) -> None:
        super().__init__(description)
        self.cls = nn.Parameter(torch.randn(config.hidden_size) * STD)
        self.layers = nn.ModuleList(BertLayer(config) for _ in range(config.num_hidden_layers))
        for module in self.layers.modules():
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, std=STD)
                nn.init.zeros_(module.bias)

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """See Aggregation."""
        cls = self.cls.expand(states.shape[0], 1, -1).to(states.dtype)
        states = torch.cat([cls, states], dim=1)  # (docs, 1 + passages, hidden)
        hidden = F.pad(~mask, (1, 0))[:, None, None, :]  # of every query position, [CLS] never
        added = torch.zeros_like(hidden, dtype=torch.float32).masked_fill(hidden, torch.finfo(torch.float32).min)
        for layer in self.layers:
            states = layer(states, added)
        return states[:, 0]


@AGGREGATORS.register("transformer")
class Transformer(StateAggregator):
    """PARADE-Transformer (equations 5 and 6): BERT layers over a learned [CLS] and the passages; the [CLS] is the document.

    Like the authors' code it adds no positions. A pretrained one (Transf-PRETR of the evaluation paper, Boytsov et al. 2022) takes
    over the first layers of an encoder, without its embeddings.
    """

    layers: int = Field(2, ge=1, le=48, description="how many; of a pretrained encoder the first ones")
    heads: int = Field(12, ge=1, description="attention heads of a layer; a pretrained encoder has its own")
    ffn: int | None = Field(
        None, ge=1, description="inner size of a layer; none: 4 x hidden size; a pretrained encoder has its own"
    )
    pretrained: str | None = Field(
        None, description="whose first layers to take: hub name or local path of an encoder; none: random"
    )

    def build(self, hidden: int) -> Aggregation:
        """See StateAggregator."""
        return self._random(hidden) if self.pretrained is None else self._pretrained(hidden, self.pretrained)

    def _random(self, hidden: int) -> TransformerAggregation:
        if hidden % self.heads:
            raise ValueError(f"transformer: {self.heads} heads do not divide the encoder's hidden size of {hidden}; set heads")
        config = BertConfig(
            hidden_size=hidden,
            num_hidden_layers=self.layers,
            num_attention_heads=self.heads,
            intermediate_size=self.ffn or 4 * hidden,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
        config._attn_implementation = "eager"  # passages are few, and this one exports
        return TransformerAggregation(self.describe(), config)

    def _pretrained(self, hidden: int, name: str) -> TransformerAggregation:
        encoder = _encoder(name, hidden, self.layers)
        try:
            sizes = {"heads": encoder.config.num_attention_heads, "ffn": encoder.config.intermediate_size}
            module = self.model_copy(update={"pretrained": None, **sizes})._random(hidden)
            for own, theirs in zip(module.layers, encoder.encoder.layer, strict=False):
                own.load_state_dict(theirs.state_dict())
            module.pretrained = list(module.layers.parameters())
        except (AttributeError, RuntimeError):
            kind = encoder.config.model_type
            raise ValueError(f"pretrained {name}: {kind} layers are not built as BERT's are; take another encoder") from None
        return module


def _encoder(name: str, hidden: int, layers: int) -> Any:
    """The pretrained encoder. Raises ValueError when there is none, or none of this hidden size and at least as many layers."""
    from training.recipe import backbone_path  # recipes are checked against AGGREGATORS

    try:
        encoder = AutoModel.from_pretrained(backbone_path(name))
    except Exception as error:  # configuration, weights and architecture each raise kinds of their own
        line = " ".join(str(error).split())
        raise ValueError(f"pretrained {name}: cannot be read as an encoder ({type(error).__name__}: {line})") from None
    config = encoder.config
    if config.hidden_size != hidden:
        raise ValueError(f"pretrained {name}: its hidden size is {config.hidden_size}, but the ranker's encoder has {hidden}")
    if config.num_hidden_layers < layers:
        raise ValueError(f"pretrained {name}: {layers} layers were asked for, but it has {config.num_hidden_layers}")
    if getattr(config, "hidden_act", "gelu") != "gelu":
        raise ValueError(f"pretrained {name}: its activation is {config.hidden_act}, and only gelu is known here")
    return encoder
