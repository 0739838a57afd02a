"""A pretrained encoder with fewer layers or more positions; its configuration says so, so that a checkpoint needs no recipe.

Longformer's authors began with RoBERTa's 512 positions again and again (Beltagy et al. 2020, section 5): next to a token stand the
neighbours that the attention knows. Stretching the table linearly keeps the order of positions instead.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers.modeling_utils import PreTrainedModel

from training.declarations import EncoderShape


@dataclass(frozen=True)
class PositionTable:
    """Where an encoder keeps its absolute positions.

    Attributes:
        parent: the module that holds the table.
        name: of the table, as the encoder's state_dict begins its weight's.
        table: (rows, hidden) embeddings.
    """

    parent: nn.Module
    name: str
    table: nn.Embedding

    @property
    def offset(self) -> int:
        """Rows in front of the first position: RoBERTa's begin behind its padding id."""
        return 0 if self.table.padding_idx is None else self.table.padding_idx + 1

    @property
    def positions(self) -> int:
        """Tokens of a sequence that have a position."""
        return self.table.num_embeddings - self.offset


def position_table(encoder: nn.Module) -> PositionTable | None:
    """An encoder's table of absolute positions; None where it has relative or rotary ones."""
    for name, module in encoder.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return PositionTable(encoder.get_submodule(name.rpartition(".")[0]), name, module)
    return None


def tiled(rows: Tensor, count: int) -> Tensor:
    """(positions, hidden) again and again until there are `count`."""
    return rows.repeat(-(-count // len(rows)), 1)[:count]


def interpolated(rows: Tensor, count: int) -> Tensor:
    """(positions, hidden) stretched linearly to `count`: the first and the last stay the first and the last."""
    return F.interpolate(rows.T[None], size=count, mode="linear", align_corners=True)[0].T


EXTENSIONS: dict[str, Callable[[Tensor, int], Tensor]] = {"tiled": tiled, "interpolated": interpolated}
"""By the names of training.declarations.EncoderShape."""


def reshape(encoder: PreTrainedModel, shape: EncoderShape) -> None:
    """Cut and lengthen an encoder in place, and its configuration.

    Raises ValueError for more layers or fewer positions than it has, and for positions where it has no table of them.
    """
    if shape.kept:
        keep_layers(encoder, shape.kept)
    if shape.positions is not None:
        extend_positions(encoder, shape.positions, shape.extension)


def layer_stack(encoder: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """An encoder's layers, with the name of their list. Raises ValueError where it shares one between all."""
    config = encoder.config
    had = int(config.num_hidden_layers)
    for name, module in encoder.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == had:
            return name, module
    raise ValueError(f"reshape.layers: a {config.model_type} keeps no list of its {had} layers; leave it out")


def keep_layers(encoder: PreTrainedModel, kept: Sequence[int]) -> None:
    """Keep some of an encoder's layers, counted from 0. Raises ValueError where it has fewer, or shares one between all."""
    config = encoder.config
    had = int(config.num_hidden_layers)
    if kept[-1] >= had:
        asked = f"{len(kept)} are more than" if len(kept) > had else f"name layer {kept[-1]} of"
        raise ValueError(f"reshape.layers {asked} the {had} that the backbone has; ask for {had} at most, counted from 0")
    _, layers = layer_stack(encoder)
    for number in reversed(range(had)):
        if number not in kept:
            del layers[number]
    for name, value in config.to_dict().items():  # what is said of each layer: Longformer's windows, ModernBERT's kinds
        if isinstance(value, list) and len(value) == had and name in vars(config):
            setattr(config, name, [value[number] for number in kept])
    config.num_hidden_layers = len(kept)


def extend_positions(encoder: PreTrainedModel, positions: int, extension: str) -> None:
    """Give an encoder's table of positions room for sequences of so many tokens. Raises ValueError as `reshape` does."""
    found = position_table(encoder)
    if found is None:
        raise ValueError(
            f"reshape.positions: a {encoder.config.model_type} has no table of absolute positions to extend; leave it out"
        )
    if positions < found.positions:
        raise ValueError(f"reshape.positions {positions} are fewer than the {found.positions} that the backbone has; leave it out")
    before, rows = found.table.num_embeddings, found.offset + positions
    found.table.weight = nn.Parameter(extended(found.table.weight.detach(), found.offset, rows, extension))
    found.table.num_embeddings = encoder.config.max_position_embeddings = rows
    for name, buffer in list(found.parent.named_buffers(recurse=False)):
        if buffer.shape[-1] == before:  # numbers of the positions, and BERT's types of a text of one segment
            longer = torch.arange(rows, device=buffer.device).expand(1, -1) if name == "position_ids" else buffer.new_zeros(1, rows)
            setattr(found.parent, name, longer)


def extended(weight: Tensor, offset: int, rows: int, extension: str) -> Tensor:
    """A table (more rows, hidden) made of one with fewer; the `offset` rows in front of the first position stay."""
    return torch.cat([weight[:offset], EXTENSIONS[extension](weight[offset:], rows - offset)])


def fitted(weights: Mapping[str, Tensor], encoder: PreTrainedModel, shape: EncoderShape) -> dict[str, Tensor]:
    """A checkpoint's weights for an encoder of the same architecture that was reshaped.

    The checkpoint may have fewer positions than the encoder, and more layers: those that `shape` keeps are taken.
    """
    fitting = _of_kept_layers(weights, encoder, shape) if shape.kept else dict(weights)
    found = position_table(encoder)
    if found is None or (table := weights.get(f"{found.name}.weight")) is None or len(table) >= found.table.num_embeddings:
        return fitting
    return fitting | {f"{found.name}.weight": extended(table, found.offset, found.table.num_embeddings, shape.extension)}


def _of_kept_layers(weights: Mapping[str, Tensor], encoder: PreTrainedModel, shape: EncoderShape) -> dict[str, Tensor]:
    """A deeper checkpoint's weights without the layers that are not kept; those of one as deep as the encoder as they are."""
    stack, layers = layer_stack(encoder)
    of_layer = re.compile(rf"{re.escape(stack)}\.(\d+)\.(.*)")
    places = {name: (int(found[1]), found[2]) for name in weights if (found := of_layer.fullmatch(name))}
    if 1 + max(number for number, _ in places.values()) <= len(layers):
        return dict(weights)
    kept = {name: f"{stack}.{shape.kept.index(number)}.{rest}" for name, (number, rest) in places.items() if number in shape.kept}
    return {kept.get(name, name): value for name, value in weights.items() if name in kept or name not in places}
