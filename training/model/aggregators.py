"""Learned aggregators over the [CLS] states of a document's passages (PARADE, Li et al. 2020, section 3.3; KeyB section 4.2).

Each aggregator turns states of shape (documents, passages, hidden) into one vector for each document, which the ranker's own linear
layer scores. A mask says which passages are real. Padding behind them never changes a result: it is not averaged, not attended to,
and not part of a maximum. A document without any passage gets zeros.
"""

from collections.abc import Callable, Mapping
from pkgutil import resolve_name
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers import AutoModel, BertConfig
from transformers.models.bert.modeling_bert import BertLayer

from training.declarations import STATE_AGGREGATORS, Cnn, StateAggregator, Transformer
from training.recipe import backbone_path

STD = 0.02  # standard deviation of random weights, as in BERT


class Aggregation(nn.Module):
    """Combines the states of passages into that of a document.

    Args:
        settings: the recipe's settings.
        hidden: the size of a state.

    Attributes:
        description: rebuilds the module by `build_aggregation`, without any other file; its weights are loaded afterwards.
        pretrained: parameters that do not start at random, and so learn at the encoder's rate.
    """

    def __init__(self, settings: StateAggregator, hidden: int) -> None:
        super().__init__()
        self.description = settings.describe()
        self.pretrained: list[nn.Parameter] = []

    def forward(self, states: Tensor, mask: Tensor) -> Tensor:
        """Document states (docs, hidden).

        Args:
            states: (docs, passages, hidden), in document order; values of padding are not read.
            mask: (docs, passages) bool, True for real passages; padding stands behind them.
        """
        states = states.masked_fill(~mask.unsqueeze(-1), 0.0)
        states, real = F.pad(states, (0, 0, 0, 1)), F.pad(mask, (0, 1))  # at least one passage: none would be an error
        return self.combine(states, real).masked_fill(~real.any(1, keepdim=True), 0.0)

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """Document states (docs, hidden); padding is zero. For a document of padding alone, any result but NaN is allowed."""
        raise TypeError(f"{type(self).__name__} does not say how it combines")

    def logits(self, states: Tensor, mask: Tensor, score: Callable[[Tensor], Tensor]) -> Tensor:
        """Document logits (docs,).

        Args:
            states: (docs, passages, hidden), as for `forward`.
            mask: (docs, passages), as for `forward`.
            score: the ranker's linear layer: logits (...,) of states (..., hidden).
        """
        return score(self(states, mask))


class MaxAggregation(Aggregation):
    """See Max."""

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """See Aggregation."""
        return states.masked_fill(~mask.unsqueeze(-1), torch.finfo(states.dtype).min).amax(1)


class MeanAggregation(Aggregation):
    """See Mean."""

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """See Aggregation."""
        return states.sum(1) / mask.sum(1, keepdim=True).clamp(min=1)


class AttentionAggregation(Aggregation):
    """See Attention."""

    def __init__(self, settings: StateAggregator, hidden: int) -> None:
        super().__init__(settings, hidden)
        self.weight = nn.Parameter(torch.randn(hidden) * STD)

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """See Aggregation."""
        scores = states @ self.weight  # (docs, passages)
        shares = scores.masked_fill(~mask, torch.finfo(scores.dtype).min).softmax(1)
        return (shares.unsqueeze(1) @ states).squeeze(1)


class CnnAggregation(Aggregation):
    """See Cnn."""

    def __init__(self, settings: Cnn, hidden: int) -> None:
        super().__init__(settings, hidden)
        self.layers = nn.ModuleList(nn.Conv1d(hidden, hidden, kernel_size=2, stride=2) for _ in range(settings.layers))
        self.dense = nn.Linear(hidden, hidden)

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """See Aggregation."""
        spare = 2 ** len(self.layers) - 1  # pairs an odd passage with zeros; further leftovers are padding
        states = F.pad(states, (0, 0, 0, spare))
        real = F.pad(mask, (0, spare)).unsqueeze(1).to(states.dtype)  # (docs, 1, passages)
        level, total = states.transpose(1, 2), torch.zeros_like(states[:, 0])
        for layer in self.layers:
            real = F.max_pool1d(real, kernel_size=2, stride=2)
            level = layer(level).relu() * real
            total = total + (self.dense(level.transpose(1, 2)).relu() * real.transpose(1, 2)).sum(1)
        return total


def bert_layers(layers: int, width: int, heads: int, ffn: int) -> nn.ModuleList:
    """BERT layers with random weights, for states of size `width`; `ffn` is the inner size of a layer."""
    config = BertConfig(
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=ffn,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    config._attn_implementation = "eager"  # sequences are short, and this implementation can be exported
    stack = nn.ModuleList(BertLayer(config) for _ in range(layers))
    for module in stack.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=STD)
            nn.init.zeros_(module.bias)
    return stack


def attended(layers: nn.ModuleList, states: Tensor, mask: Tensor) -> Tensor:
    """States (batch, length, width) after BERT layers, which attend only to the places in the mask (batch, length)."""
    hidden = ~mask[:, None, None, :]  # (batch, heads, from, to)
    added = torch.zeros_like(hidden, dtype=torch.float32).masked_fill(hidden, torch.finfo(torch.float32).min)
    for layer in layers:
        states = layer(states, added)
    return states


class TransformerAggregation(Aggregation):
    """See Transformer."""

    def __init__(self, settings: Transformer, hidden: int) -> None:
        super().__init__(settings, hidden)
        self.width = width = settings.width or hidden
        if width % settings.heads:
            raise ValueError(f"transformer: {settings.heads} heads do not divide the encoder's hidden size of {width}; set heads")
        if settings.start == "cls" and width != hidden:
            raise ValueError(
                f"transformer: start cls is of the ranker's size, {hidden}, and the layers' is {width}; use start random"
            )
        self.cls = nn.Parameter(torch.randn(width) * STD)
        self.layers = bert_layers(settings.layers, width, settings.heads, settings.ffn or 4 * width)
        self.positions = nn.Parameter(torch.randn(settings.positions, width) * STD) if settings.positions else None
        projected = width != hidden
        self.inward: nn.Module = nn.Linear(hidden, width) if projected else nn.Identity()
        self.outward: nn.Module = nn.Linear(width, hidden) if projected else nn.Identity()

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """See Aggregation."""
        states = self.inward(states)
        if self.positions is not None:
            states = states + torch.cat([self.positions, torch.zeros_like(states[0])])[: states.shape[1]]  # padding has no position
        cls = self.cls.expand(states.shape[0], 1, -1).to(states.dtype)
        states = torch.cat([cls, states], dim=1)  # (docs, 1 + passages, width)
        states = attended(self.layers, states, F.pad(mask, (1, 0), value=True))
        document: Tensor = self.outward(states[:, 0])
        return document


def make_transformer(settings: Transformer, hidden: int) -> TransformerAggregation:
    """A module with random layers, or with the first layers of a pretrained encoder."""
    if settings.pretrained is None:
        return TransformerAggregation(settings, hidden)
    encoder = _encoder(settings.pretrained, settings.layers)
    try:
        config = encoder.config
        sizes = {"heads": config.num_attention_heads, "ffn": config.intermediate_size}
        width = {"width": None if config.hidden_size == hidden else config.hidden_size}
        module = TransformerAggregation(settings.model_copy(update={"pretrained": None, **sizes, **width}), hidden)
        for own, theirs in zip(module.layers, encoder.encoder.layer, strict=False):
            own.load_state_dict(theirs.state_dict())
        module.pretrained = list(module.layers.parameters())
    except (AttributeError, RuntimeError):
        kind = encoder.config.model_type
        raise ValueError(
            f"pretrained {settings.pretrained}: {kind} layers are not built as BERT's are; take another encoder"
        ) from None
    return module


def _encoder(name: str, layers: int) -> Any:
    """The pretrained encoder. Raises ValueError if it cannot be read, has fewer layers, or another activation than gelu."""
    try:
        encoder = AutoModel.from_pretrained(backbone_path(name))
    except Exception as error:  # configuration, weights and architecture each raise their own errors
        line = " ".join(str(error).split())
        raise ValueError(f"pretrained {name}: cannot be read as an encoder ({type(error).__name__}: {line})") from None
    config = encoder.config
    if config.num_hidden_layers < layers:
        raise ValueError(f"pretrained {name}: {layers} layers were asked for, but it has {config.num_hidden_layers}")
    if getattr(config, "hidden_act", "gelu") != "gelu":
        raise ValueError(f"pretrained {name}: its activation is {config.hidden_act}, and only gelu is known here")
    return encoder


def build_aggregation(description: Mapping[str, Any], hidden: int) -> Aggregation:
    """Build the module of a description, for [CLS] states of size `hidden`, with fresh weights.

    Raises ValueError for an unknown name or parameter, or settings that do not fit the states.
    """
    settings = STATE_AGGREGATORS.create(description)
    module: Aggregation = resolve_name(settings.module)(settings, hidden)
    return module
