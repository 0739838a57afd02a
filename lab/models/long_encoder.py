"""Encoders of long sequences: LongP (Boytsov et al. 2022, section 3.2), QDS-Transformer, and more positions than a backbone has.

Longformer's authors repeated RoBERTa's 512 positions (Beltagy et al. 2020, section 5), so that attention finds familiar neighbours
next to a token. Stretching the table linearly keeps the order of positions instead.

QDS-Transformer (Jiang et al. 2020, "Long Document Ranking with Query-Directed Sparse Transformer", section 3) gives its attention
four parts: a local window, [CLS], the query's tokens, and a token in front of each sentence; the last three are global. In the
paper each sentence gets a token of its own, [SOS]. Here the sentence's first token has that role, so that sequences are the same as
for other rankers. The pattern is a mask for an encoder with full attention: it shows the effect on quality, and saves no time.
"""

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_utils import PreTrainedModel

from keyblock.packing import Packed
from lab.families import LongEncoderFamily, QueryDirected
from training.declarations import CrossEncoderFamily
from training.model.aggregators import Aggregation
from training.model.cross_encoder import CrossEncoder, Marker
from training.model.transformer_ranker import FULL, position_table


class LongEncoder(CrossEncoder):
    """A cross-encoder whose attention or positions are those of `lab.families.LongEncoderFamily`.

    Args:
        encoder: see CrossEncoder.
        aggregator: see CrossEncoder.
        marker: see CrossEncoder.
        settings: the family's settings.

    Raises ValueError for settings that the encoder does not support.
    """

    SETTINGS: ClassVar[type[CrossEncoderFamily]] = LongEncoderFamily
    settings: LongEncoderFamily

    def __init__(
        self,
        encoder: PreTrainedModel,
        aggregator: Aggregation | None = None,
        marker: Marker | None = None,
        settings: LongEncoderFamily | None = None,
    ) -> None:
        super().__init__(encoder, aggregator, marker, settings)
        kind = encoder.config.model_type
        self.local = "global_attention_mask" in inspect.signature(encoder.forward).parameters
        if self.settings.global_query and not self.local:
            raise ValueError(f"model.global_query: a {kind} has no global attention, Longformer has; leave it out")
        if self.settings.query_directed and kind not in FULL:
            raise ValueError(f"model.query_directed: a {kind} takes no mask of pairs of tokens; those that do: {', '.join(FULL)}")

    @classmethod
    def from_backbone(cls, *arguments: Any, **settings: Any) -> Self:
        """See CrossEncoder; with the positions of the settings. Raises ValueError as `extend_positions` does."""
        model = super().from_backbone(*arguments, **settings)
        if model.settings.positions is not None:
            extend_positions(model.encoder, model.settings.positions, model.settings.extension)
        return model

    def take_encoder(self, weights: Mapping[str, Tensor]) -> None:
        """See CrossEncoder; the table of an encoder with fewer positions is extended as this model's own was."""
        found = position_table(self.encoder)
        if (
            found is not None
            and (table := weights.get(f"{found.name}.weight")) is not None
            and len(table) < found.table.num_embeddings
        ):
            longer = extended(table, found.offset, found.table.num_embeddings, self.settings.extension)
            weights = {**weights, f"{found.name}.weight": longer}
        super().take_encoder(weights)

    def inputs(self, sequences: Sequence[Packed], pad_id: int, document_type: int = 1) -> tuple[Tensor, ...]:
        """See RankerModule; if attention depends on the query's tokens, types mark them, even for an encoder without types."""
        needs_types = self.settings.global_query or self.settings.query_directed
        return super().inputs(sequences, pad_id, 1 if needs_types else document_type)

    def named(self, *inputs: Tensor) -> dict[str, Tensor]:
        """See TransformerRanker; with the masks that say which tokens attend to which."""
        input_ids, types, mask = inputs
        named = super().named(*inputs)
        if self.settings.query_directed:
            named["attention_mask"] = directed_mask(self.settings.query_directed, input_ids, types, mask)
        if self.local:
            everywhere = query_tokens(types, mask).to(mask) if self.settings.global_query else torch.zeros_like(mask)
            everywhere[:, 0] = 1
            named["global_attention_mask"] = everywhere
        return named


def extend_positions(encoder: PreTrainedModel, positions: int, extension: str) -> None:
    """Extend an encoder's table of positions to sequences of `positions` tokens.

    Raises ValueError for fewer positions than it has, and for an encoder without a table of them.
    """
    found = position_table(encoder)
    if found is None:
        raise ValueError(
            f"model.positions: a {encoder.config.model_type} has no table of absolute positions to extend; leave it out"
        )
    if positions < found.positions:
        raise ValueError(f"model.positions {positions} are fewer than the {found.positions} that the backbone has; leave it out")
    before, rows = found.table.num_embeddings, found.offset + positions
    found.table.weight = nn.Parameter(extended(found.table.weight.detach(), found.offset, rows, extension))
    found.table.num_embeddings = encoder.config.max_position_embeddings = rows
    for name, buffer in list(found.parent.named_buffers(recurse=False)):
        if buffer.shape[-1] == before:  # position ids, and BERT's default type ids
            longer = torch.arange(rows, device=buffer.device).expand(1, -1) if name == "position_ids" else buffer.new_zeros(1, rows)
            setattr(found.parent, name, longer)


def extended(weight: Tensor, offset: int, rows: int, extension: str) -> Tensor:
    """Extend a table to (rows, hidden) as the family says; the `offset` rows before the first position stay."""
    known, count = weight[offset:], rows - offset
    if extension == "tiled":
        longer = known.repeat(-(-count // len(known)), 1)[:count]
    else:  # the first and the last row stay
        longer = F.interpolate(known.T[None], size=count, mode="linear", align_corners=True)[0].T
    return torch.cat([weight[:offset], longer])


def query_tokens(types: Tensor, mask: Tensor) -> Tensor:
    """A mask of [CLS], the query and its separators: (batch, length), bool.

    Args:
        types: (batch, length), segment types; 0 for the query's.
        mask: (batch, length), not 0 for real tokens.
    """
    return (types == 0) & (mask != 0)


def sentence_starts(input_ids: Tensor, types: Tensor, ends: tuple[int, ...]) -> Tensor:
    """A mask of the document's first token and of those after the end of a sentence: (batch, length), bool; empty without `ends`.

    Args:
        input_ids: (batch, length).
        types: (batch, length), 1 for the document's tokens.
        ends: ids of the tokens that end a sentence.
    """
    starts = torch.zeros_like(types, dtype=torch.bool)
    if ends:
        ended = torch.isin(input_ids, torch.tensor(ends, device=input_ids.device))
        starts[:, 1:] = (types[:, 1:] == 1) & (ended[:, :-1] | (types[:, :-1] == 0))
    return starts


def directed_mask(pattern: QueryDirected, input_ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
    """The mask added to attention scores: (batch, 1, length, length) in fp32, 0 where the row's token attends to the column's.

    Every token attends to itself, so that padding has something to attend to.

    Args:
        pattern: the window, and the tokens that end a sentence.
        input_ids: (batch, length), token ids.
        types: (batch, length), 1 for the document's tokens.
        mask: (batch, length), not 0 for real tokens.
    """
    places = torch.arange(mask.shape[1], device=mask.device)
    distance = (places[:, None] - places).abs()  # (length, length)
    everywhere = query_tokens(types, mask) | sentence_starts(input_ids, types, pattern.sentence_ends)
    near = distance <= pattern.window
    seen = (near | everywhere[:, :, None] | everywhere[:, None, :]) & (mask != 0)[:, None, :] | (distance == 0)
    return torch.zeros(seen.shape, device=mask.device).masked_fill(~seen, torch.finfo(torch.float32).min).unsqueeze(1)
