"""The ranker: a Hugging Face encoder and one linear layer on [CLS] (KeyB section 4.1, step 4).

For PARADE a learned module between them makes one state of a document's passages (KeyB section 4.2).
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel
from transformers.modeling_utils import PreTrainedModel

from training.declarations import STATE_AGGREGATORS
from training.models.aggregators import Aggregation, build_aggregation
from training.models.marker import Marker
from training.models.transformer_ranker import (
    ENCODER_WEIGHTS,
    TransformerRanker,
    one_clear_error,
    tells_types,
    with_attention,
    without_dropout,
)

HEAD_FILE = "head.safetensors"
AGGREGATOR_FILE, AGGREGATOR_WEIGHTS = "aggregator.json", "aggregator.safetensors"


class CrossEncoder(TransformerRanker):
    """Scores packed (query, blocks) sequences.

    Args:
        encoder: any encoder whose output has `last_hidden_state` with [CLS] first.
        aggregator: makes one state of a document's passages, for a pipeline whose aggregator is ``states``.
        marker: marks the tokens that answer; none: it ranks alone.
    """

    family: Mapping[str, Any] = {"name": "cross_encoder"}

    def __init__(self, encoder: PreTrainedModel, aggregator: Aggregation | None = None, marker: Marker | None = None) -> None:
        super().__init__()
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
        marks: int = 0,
    ) -> Self:
        """See RankerFamily; `marks` is the width of the marker, 0 for none.

        Dropout costs a third of a CPU step's speed, and these runs stop long before they overfit.
        """
        with one_clear_error(name_or_path):
            config = without_dropout(AutoConfig.from_pretrained(name_or_path), dropout)
            encoder = read_encoder(name_or_path, attention, config=config)
        size = encoder.config.hidden_size
        return cls(encoder, build_aggregation(aggregator, size) if aggregator else None, Marker(size, marks) if marks else None)

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
            model = cls(encoder, aggregator, Marker.load(Path(directory)))
            model.load_weights(directory, encoder=False)
            return model.eval()

    def save_weights(self, directory: str | Path) -> None:
        """Write config.json, model.safetensors (the encoder) and head.safetensors; of a marker and an aggregator theirs."""
        directory = Path(directory)
        self.encoder.save_pretrained(directory)
        save_file(self.head.state_dict(), directory / HEAD_FILE)
        if self.marker is not None:
            self.marker.save(directory)
        if self.aggregator is not None:
            (directory / AGGREGATOR_FILE).write_text(json.dumps(self.aggregator.description), encoding="utf-8")
            save_file(self.aggregator.state_dict(), directory / AGGREGATOR_WEIGHTS)

    def load_weights(self, directory: str | Path, encoder: bool = True) -> None:
        """See RankerModule; without the encoder where that is loaded already."""
        directory = Path(directory)
        if encoder:
            self.encoder.load_state_dict(load_file(directory / ENCODER_WEIGHTS))
        self.head.load_state_dict(load_file(directory / HEAD_FILE))
        self._take_marker(directory)
        if self.aggregator is not None:
            self.aggregator.load_state_dict(load_file(directory / AGGREGATOR_WEIGHTS))

    def start_from(self, directory: str | Path) -> None:
        """Take over another checkpoint's encoder and head, and its marker and aggregator where both have the same one.

        An aggregator or marker of another kind stays fresh. Raises ValueError when the encoders differ.
        """
        directory = Path(directory)
        with one_clear_error(directory):
            self.encoder.load_state_dict(load_file(directory / ENCODER_WEIGHTS))
            self.head.load_state_dict(load_file(directory / HEAD_FILE))
            self._take_marker(directory)
            described = directory / AGGREGATOR_FILE
            if self.aggregator is not None and described.exists():
                theirs = STATE_AGGREGATORS.create(json.loads(described.read_text(encoding="utf-8")))
                if theirs.describe() == self.aggregator.description:
                    self.aggregator.load_state_dict(load_file(directory / AGGREGATOR_WEIGHTS))

    def _take_marker(self, directory: Path) -> None:
        """The checkpoint's marker, where both have one of the same size."""
        theirs = Marker.load(directory)
        if self.marker is not None and theirs is not None and theirs.inner.weight.shape == self.marker.inner.weight.shape:
            self.marker.load_state_dict(theirs.state_dict())

    def pretrained(self) -> Iterator[nn.Parameter]:
        """The encoder's, and an aggregator's that come from one."""
        yield from self.encoder.parameters()
        if self.aggregator is not None:
            yield from self.aggregator.pretrained

    @property
    def hidden_size(self) -> int:
        """See RankerModule."""
        return int(self.encoder.config.hidden_size)

    def states(self, *inputs: Tensor) -> Tensor:
        """[CLS] states of shape (batch, hidden), in fp32, from three (batch, length) integer tensors."""
        states: Tensor = self.encoder(**self.named(*inputs)).last_hidden_state[:, 0]
        return states.float()

    def marked(self, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        """[CLS] states (batch, hidden) and the logits of tokens (batch, length), in fp32, in one pass; padding's mean nothing.

        Raises ValueError for a model without a marker.
        """
        if self.marker is None:
            raise ValueError("this model has no marker: it ranks documents, and marks none of their tokens")
        output = self.encoder(**self.named(*inputs), output_hidden_states=True)
        with torch.autocast(output.last_hidden_state.device.type, enabled=False):
            marks: Tensor = self.marker(output.hidden_states[-2].float())
        return output.last_hidden_state[:, 0].float(), marks

    def scores(self, states: Tensor) -> Tensor:
        """Logits of shape (...,) from states (..., hidden): in fp32, since eight bits of a logit leave ties that nobody meant."""
        with torch.autocast(states.device.type, enabled=False):
            return self.head(states.float()).squeeze(-1)


def read_encoder(name_or_path: str, attention: str, **options: object) -> PreTrainedModel:
    """The encoder alone: a pooler, where the architecture has one, is neither used nor kept."""

    def load(attention: str) -> PreTrainedModel:
        try:
            return AutoModel.from_pretrained(name_or_path, attn_implementation=attention, add_pooling_layer=False, **options)
        except TypeError:  # architectures without a pooler do not know the option
            return AutoModel.from_pretrained(name_or_path, attn_implementation=attention, **options)

    return with_attention(attention, load)
