"""The ranker: a Hugging Face encoder and one linear layer on [CLS] (KeyB section 4.1, step 4), or on another pooled state.

For PARADE a learned module between encoder and layer combines the states of a document's passages (KeyB section 4.2).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel
from transformers.modeling_utils import PreTrainedModel

from training.declarations import STATE_AGGREGATORS, CrossEncoderFamily, EncoderShape, read_family
from training.model.aggregators import Aggregation, build_aggregation
from training.model.ranker_module import FAMILY_FILE
from training.model.transformer_ranker import (
    ENCODER_WEIGHTS,
    TransformerRanker,
    fitted,
    keep_layers,
    one_clear_error,
    tells_types,
    unchanged,
    with_attention,
    without_dropout,
)

Pool = Callable[[Tensor, Tensor], Tensor]
"""A function of states (batch, length, hidden) and the mask (batch, length) of real tokens, padding last, to (batch, hidden)."""


def first(states: Tensor, _: Tensor) -> Tensor:
    """The state of [CLS]."""
    return states[:, 0]


def mean(states: Tensor, mask: Tensor) -> Tensor:
    """The mean over the real tokens, special tokens included."""
    real = mask.unsqueeze(-1).to(states.dtype)
    return (states * real).sum(1) / real.sum(1)


def last(states: Tensor, mask: Tensor) -> Tensor:
    """The state of the last real token: in a decoder the only one that has read all tokens."""
    starts = torch.arange(mask.shape[0], device=mask.device) * mask.shape[1]
    return states.flatten(0, 1).index_select(
        0, starts + mask.sum(1) - 1
    )  # (batch x length, hidden): an exported graph keeps the width


POOLINGS: dict[str, Pool] = {"cls": first, "mean": mean, "last": last}
"""The poolings, by their names in training.declarations.CrossEncoderFamily."""


MARKER = "/marker/"  # in the names of its nodes in a graph
MARKER_FILE = "marker.safetensors"


class Marker(nn.Module):
    """One hidden layer over a token's state.

    Args:
        hidden: size of a state.
        width: size of the hidden layer.
    """

    def __init__(self, hidden: int, width: int) -> None:
        super().__init__()
        self.inner = nn.Linear(hidden, width)
        self.outer = nn.Linear(width, 1)

    def forward(self, states: Tensor) -> Tensor:
        """Logits of shape (batch, length) from states (batch, length, hidden)."""
        logits: Tensor = self.outer(self.inner(states).relu()).squeeze(-1)
        return logits

    def save(self, directory: Path) -> None:
        """Write the weights."""
        save_file(self.state_dict(), directory / MARKER_FILE)

    @classmethod
    def load(cls, directory: Path) -> Self | None:
        """Read what `save` wrote; None if there is no marker."""
        path = directory / MARKER_FILE
        if not path.exists():
            return None
        weights = load_file(path)
        width, hidden = weights["inner.weight"].shape
        marker = cls(hidden, width)
        marker.load_state_dict(weights)
        return marker


HEAD_FILE = "head.safetensors"
AGGREGATOR_FILE, AGGREGATOR_WEIGHTS = "aggregator.json", "aggregator.safetensors"


class CrossEncoder(TransformerRanker):
    """Scores packed (query, blocks) sequences.

    Args:
        encoder: any encoder or decoder whose output has `last_hidden_state`; for pooling by [CLS], with [CLS] as first token.
        aggregator: combines the states of a document's passages, for a pipeline whose aggregator is ``states``.
        marker: marks the tokens that answer; None: the model only ranks.
        settings: the family's settings, without `marks`, which `marker` decides; None: the defaults.
    """

    SETTINGS: ClassVar[type[CrossEncoderFamily]] = CrossEncoderFamily

    def __init__(
        self,
        encoder: PreTrainedModel,
        aggregator: Aggregation | None = None,
        marker: Marker | None = None,
        settings: CrossEncoderFamily | None = None,
    ) -> None:
        super().__init__()
        settings = settings or self.SETTINGS()
        self.settings, self.family = settings, settings.describe()
        self.pool = POOLINGS[settings.pooling]
        self.masks = unchanged
        self.shape = EncoderShape()
        self.encoder = encoder
        self.aggregator = aggregator
        self.marker = marker
        self.typed = tells_types(encoder)
        self.head = nn.Linear(encoder.config.hidden_size, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    @property
    def transformer(self) -> PreTrainedModel:
        """See TransformerRanker."""
        return self.encoder

    @classmethod
    def from_backbone(
        cls,
        name_or_path: str,
        dropout: float = 0.0,
        attention: str = "sdpa",
        aggregator: Mapping[str, Any] | None = None,
        shape: EncoderShape | None = None,
        **settings: Any,
    ) -> Self:
        """See RankerFamily; the settings are those of SETTINGS.

        Dropout takes a third of a CPU step's speed, and these runs stop long before they overfit: 0 is the default.
        """
        family, encoder = cls.SETTINGS.read(settings), read_backbone(name_or_path, dropout, attention, shape)
        size = encoder.config.hidden_size
        marker = Marker(size, family.marks) if family.marks else None
        model = cls(encoder, build_aggregation(aggregator, size) if aggregator else None, marker, family)
        model.shape = shape or EncoderShape()
        return model

    @classmethod
    def load(cls, directory: str | Path, attention: str = "sdpa") -> Self:
        """See RankerFamily."""
        with one_clear_error(directory):
            encoder = read_encoder(str(directory), attention)
            described = Path(directory) / AGGREGATOR_FILE
            aggregator = None
            if described.exists():
                description = json.loads(described.read_text(encoding="utf-8"))
                aggregator = build_aggregation(description, encoder.config.hidden_size)
            family = read_family(Path(directory, FAMILY_FILE))
            settings = family if isinstance(family, CrossEncoderFamily) else None  # else a family that contains a cross-encoder
            model = cls(encoder, aggregator, Marker.load(Path(directory)), settings)
            model.load_weights(directory, encoder=False)
            return model.eval()

    def save_weights(self, directory: str | Path) -> None:
        """Write config.json, model.safetensors (the encoder), head.safetensors, and the files of marker and aggregator, if any."""
        directory = Path(directory)
        self.encoder.save_pretrained(directory)
        save_file(self.head.state_dict(), directory / HEAD_FILE)
        if self.marker is not None:
            self.marker.save(directory)
        if self.aggregator is not None:
            (directory / AGGREGATOR_FILE).write_text(json.dumps(self.aggregator.description), encoding="utf-8")
            save_file(self.aggregator.state_dict(), directory / AGGREGATOR_WEIGHTS)

    def load_weights(self, directory: str | Path, encoder: bool = True) -> None:
        """See RankerModule; without the encoder if it is loaded already."""
        directory = Path(directory)
        if encoder:
            self.encoder.load_state_dict(load_file(directory / ENCODER_WEIGHTS))
        self.head.load_state_dict(load_file(directory / HEAD_FILE))
        self._take_marker(directory)
        if self.aggregator is not None:
            self.aggregator.load_state_dict(load_file(directory / AGGREGATOR_WEIGHTS))

    def start_from(self, directory: str | Path) -> None:
        """Take over another checkpoint's encoder and head, and its marker and aggregator if they are of the same kind.

        An aggregator or marker of another kind stays fresh. Raises ValueError if the encoders differ.
        """
        directory = Path(directory)
        with one_clear_error(directory):
            self.take_encoder(load_file(directory / ENCODER_WEIGHTS))
            self.head.load_state_dict(load_file(directory / HEAD_FILE))
            self._take_marker(directory)
            described = directory / AGGREGATOR_FILE
            if self.aggregator is not None and described.exists():
                theirs = STATE_AGGREGATORS.create(json.loads(described.read_text(encoding="utf-8")))
                if theirs.describe() == self.aggregator.description:
                    self.aggregator.load_state_dict(load_file(directory / AGGREGATOR_WEIGHTS))

    def take_encoder(self, weights: Mapping[str, Tensor]) -> None:
        """Take over an encoder's weights; of one with more layers, those that this model's own kept.

        Raises RuntimeError for weights of another architecture.
        """
        self.encoder.load_state_dict(fitted(weights, self.encoder, self.shape))

    def _take_marker(self, directory: Path) -> None:
        """Take over the checkpoint's marker if both models have one of the same size."""
        theirs = Marker.load(directory)
        if self.marker is not None and theirs is not None and theirs.inner.weight.shape == self.marker.inner.weight.shape:
            self.marker.load_state_dict(theirs.state_dict())

    def pretrained(self) -> Iterator[nn.Parameter]:
        """See RankerModule: the encoder's parameters, and the pretrained ones of an aggregator."""
        yield from self.encoder.parameters()
        if self.aggregator is not None:
            yield from self.aggregator.pretrained

    @property
    def graph_inputs(self) -> tuple[str, ...]:
        """See RankerModule: without type ids if the encoder has one type of segment."""
        return self.INPUTS if self.typed else (self.INPUTS[0], self.INPUTS[2])

    @property
    def hidden_size(self) -> int:
        """See RankerModule."""
        return int(self.encoder.config.hidden_size)

    def named(self, *inputs: Tensor) -> dict[str, Tensor]:
        """See TransformerRanker; with the mask that `masks` makes."""
        input_ids, types, mask = inputs
        return super().named(input_ids, types, self.masks(mask))

    def states(self, *inputs: Tensor) -> Tensor:
        """Pooled states of shape (batch, hidden), in fp32, from three (batch, length) integer tensors."""
        return self.pool(self.encoder(**self.named(*inputs)).last_hidden_state.float(), inputs[2])

    def marked(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Pooled states (batch, hidden) and the logits of tokens (batch, length), in fp32, in one pass; ignore those of padding.

        Raises ValueError for a model without a marker.
        """
        if self.marker is None:
            raise ValueError("this model has no marker: it ranks documents, and marks none of their tokens")
        states, tokens = self.read(*inputs)
        with torch.autocast(tokens.device.type, enabled=False):
            marks: Tensor = self.marker(tokens)
        return states, marks

    def read(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Pooled states (batch, hidden), and the tokens' states before the last layer (batch, length, hidden), in fp32."""
        output = self.encoder(**self.named(*inputs), output_hidden_states=True)
        return self.pool(output.last_hidden_state.float(), inputs[2]), output.hidden_states[-2].float()

    def scores(self, states: Tensor) -> Tensor:
        """Logits of shape (...,) from states (..., hidden), in fp32: the eight bits of a bf16 logit would cause ties."""
        with torch.autocast(states.device.type, enabled=False):
            return self.head(states.float()).squeeze(-1)


def read_backbone(name_or_path: str, dropout: float, attention: str, shape: EncoderShape | None = None) -> PreTrainedModel:
    """A pretrained encoder with this dropout and shape.

    Raises ValueError in one line that names the encoder if it cannot be read, and as `keep_layers` does.
    """
    with one_clear_error(name_or_path):
        config = without_dropout(AutoConfig.from_pretrained(name_or_path), dropout)
        if getattr(config, "attention_type", None) == "block_sparse":
            config.attention_type = "original_full"  # BigBird draws its blocks by the padded length: scores would depend on it
        if getattr(config, "use_cache", False):
            config.use_cache = False  # a decoder's cache for further tokens
        encoder = read_encoder(name_or_path, attention, config=config)
    if shape and shape.kept:
        keep_layers(encoder, shape.kept)
    return encoder


def read_encoder(name_or_path: str, attention: str, **options: object) -> PreTrainedModel:
    """The encoder, without the pooler that some architectures have."""

    def load(attention: str) -> PreTrainedModel:
        arguments = {"attn_implementation": attention, "dtype": torch.float32, **options}
        try:
            return AutoModel.from_pretrained(name_or_path, add_pooling_layer=False, **arguments)
        except TypeError:  # architectures without a pooler do not know the option
            return AutoModel.from_pretrained(name_or_path, **arguments)

    return with_attention(attention, load)
