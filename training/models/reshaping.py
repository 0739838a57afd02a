"""Gives a pretrained encoder fewer layers, also in its configuration, so that a checkpoint needs no recipe."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

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


def fitted(weights: Mapping[str, Tensor], encoder: PreTrainedModel, shape: EncoderShape) -> dict[str, Tensor]:
    """A checkpoint's weights for an encoder of the same architecture with the layers that `shape` keeps.

    A checkpoint that has no more layers than the encoder is taken as it is.
    """
    if not shape.kept:
        return dict(weights)
    stack, layers = layer_stack(encoder)
    of_layer = re.compile(rf"{re.escape(stack)}\.(\d+)\.(.*)")
    places = {name: (int(found[1]), found[2]) for name in weights if (found := of_layer.fullmatch(name))}
    if 1 + max(number for number, _ in places.values()) <= len(layers):
        return dict(weights)
    kept = {name: f"{stack}.{shape.kept.index(number)}.{rest}" for name, (number, rest) in places.items() if number in shape.kept}
    return {kept.get(name, name): value for name, value in weights.items() if name in kept or name not in places}
