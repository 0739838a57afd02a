"""Gives a pretrained encoder fewer layers or more positions, also in its configuration, so that a checkpoint needs no recipe.

Longformer's authors repeated RoBERTa's 512 positions (Beltagy et al. 2020, section 5), so that attention finds familiar neighbours
next to a token. Stretching the table linearly keeps the order of positions instead.
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
    """An encoder's table of absolute positions.

    Attributes:
        parent: the module that holds the table.
        name: the table's name in the encoder; its weight in the state_dict begins with it.
        table: (rows, hidden) embeddings.
    """

    parent: nn.Module
    name: str
    table: nn.Embedding

    @property
    def offset(self) -> int:
        """Rows before the first position: RoBERTa's positions begin after its padding id."""
        return 0 if self.table.padding_idx is None else self.table.padding_idx + 1

    @property
    def positions(self) -> int:
        """The number of positions: tokens of the longest sequence."""
        return self.table.num_embeddings - self.offset


def position_table(encoder: nn.Module) -> PositionTable | None:
    """An encoder's table of absolute positions; None for relative or rotary positions."""
    for name, module in encoder.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return PositionTable(encoder.get_submodule(name.rpartition(".")[0]), name, module)
    return None


def tiled(rows: Tensor, count: int) -> Tensor:
    """Repeat rows (positions, hidden) until there are `count`."""
    return rows.repeat(-(-count // len(rows)), 1)[:count]


def interpolated(rows: Tensor, count: int) -> Tensor:
    """Stretch rows (positions, hidden) linearly to `count`; the first and the last row stay."""
    return F.interpolate(rows.T[None], size=count, mode="linear", align_corners=True)[0].T


EXTENSIONS: dict[str, Callable[[Tensor, int], Tensor]] = {"tiled": tiled, "interpolated": interpolated}
"""The extensions, by their names in training.declarations.EncoderShape."""


def reshape(encoder: PreTrainedModel, shape: EncoderShape) -> None:
    """Change an encoder's layers and positions in place, and its configuration.

    Raises ValueError for more layers or fewer positions than it has, and for positions of an encoder without a table of them.
    """
    if shape.kept:
        keep_layers(encoder, shape.kept)
    if shape.positions is not None:
        extend_positions(encoder, shape.positions, shape.extension)


def layer_stack(encoder: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """The name of an encoder's list of layers, and the list. Raises ValueError for an encoder that shares one layer."""
    config = encoder.config
    count = int(config.num_hidden_layers)
    for name, module in encoder.named_modules():
        if isinstance(module, nn.ModuleList) and len(module) == count:
            return name, module
    raise ValueError(f"reshape.layers: a {config.model_type} keeps no list of its {count} layers; leave it out")


def keep_layers(encoder: PreTrainedModel, kept: Sequence[int]) -> None:
    """Keep only the layers `kept`, counted from 0. Raises ValueError if the encoder has fewer, or shares one layer."""
    config = encoder.config
    count = int(config.num_hidden_layers)
    if kept[-1] >= count:
        problem = f"{len(kept)} are more than" if len(kept) > count else f"name layer {kept[-1]} of"
        raise ValueError(f"reshape.layers {problem} the {count} that the backbone has; ask for {count} at most, counted from 0")
    _, layers = layer_stack(encoder)
    for number in reversed(range(count)):
        if number not in kept:
            del layers[number]
    for name, value in config.to_dict().items():  # settings by layer: Longformer's windows, ModernBERT's kinds
        if isinstance(value, list) and len(value) == count and name in vars(config):
            setattr(config, name, [value[number] for number in kept])
    config.num_hidden_layers = len(kept)


def extend_positions(encoder: PreTrainedModel, positions: int, extension: str) -> None:
    """Extend an encoder's table of positions to sequences of `positions` tokens. Raises ValueError as `reshape` does."""
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
        if buffer.shape[-1] == before:  # position ids, and BERT's default type ids
            longer = torch.arange(rows, device=buffer.device).expand(1, -1) if name == "position_ids" else buffer.new_zeros(1, rows)
            setattr(found.parent, name, longer)


def extended(weight: Tensor, offset: int, rows: int, extension: str) -> Tensor:
    """Extend a table to (rows, hidden); the `offset` rows before the first position stay."""
    return torch.cat([weight[:offset], EXTENSIONS[extension](weight[offset:], rows - offset)])


def fitted(weights: Mapping[str, Tensor], encoder: PreTrainedModel, shape: EncoderShape) -> dict[str, Tensor]:
    """A checkpoint's weights for an encoder of the same architecture that was reshaped.

    The checkpoint may have fewer positions than the encoder, and more layers: only those that `shape` keeps are used.
    """
    fitting = _of_kept_layers(weights, encoder, shape) if shape.kept else dict(weights)
    found = position_table(encoder)
    if found is None or (table := weights.get(f"{found.name}.weight")) is None or len(table) >= found.table.num_embeddings:
        return fitting
    return fitting | {f"{found.name}.weight": extended(table, found.offset, found.table.num_embeddings, shape.extension)}


def _of_kept_layers(weights: Mapping[str, Tensor], encoder: PreTrainedModel, shape: EncoderShape) -> dict[str, Tensor]:
    """The weights of the layers that `shape` keeps; all weights if the checkpoint has no more layers than the encoder."""
    stack, layers = layer_stack(encoder)
    of_layer = re.compile(rf"{re.escape(stack)}\.(\d+)\.(.*)")
    places = {name: (int(found[1]), found[2]) for name in weights if (found := of_layer.fullmatch(name))}
    if 1 + max(number for number, _ in places.values()) <= len(layers):
        return dict(weights)
    kept = {name: f"{stack}.{shape.kept.index(number)}.{rest}" for name, (number, rest) in places.items() if number in shape.kept}
    return {kept.get(name, name): value for name, value in weights.items() if name in kept or name not in places}
