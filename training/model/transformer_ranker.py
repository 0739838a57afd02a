"""Base of the families around one Hugging Face model: its inputs, its limits, reading it from disk or hub, and fewer layers.

An encoder with fewer layers says so in its configuration, so that a checkpoint needs no recipe.
"""

import inspect
import re
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor, nn
from transformers import PretrainedConfig
from transformers.modeling_utils import PreTrainedModel

from training.declarations import EncoderShape
from training.model.ranker_module import RankerModule


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
    raise ValueError(f"a {config.model_type} keeps no list of its {count} layers: leave reshape.layers out")


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


ENCODER_WEIGHTS = "model.safetensors"
Masks = Callable[[Tensor], Any]
"""Makes a module's `attention_mask` from the mask of real tokens, (batch, length)."""
FULL = ("albert", "bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")
"""Encoders, by transformers' names, whose layers all accept one mask over pairs of tokens."""
TRACED = (*FULL, "deberta-v2", "modernbert", "mpnet")
"""Encoders whose masks a graph can hold: a cross-encoder on them is exported."""
RELATIVE = 1 << 20  # max_length of a model without a table of positions: no limit


class TransformerRanker(RankerModule):
    """A ranker around one Hugging Face model.

    Attributes:
        typed: whether the model reads segment types.
        masks: makes the model's attention mask; an export computes it in operators that a graph can hold.
    """

    typed: bool
    masks: Masks

    @property
    @abstractmethod
    def transformer(self) -> PreTrainedModel:
        """The Hugging Face model."""

    def named(self, *inputs: Tensor) -> dict[str, Tensor]:
        """The INPUTS as the model's arguments."""
        input_ids, token_type_ids, attention_mask = inputs
        types = {"token_type_ids": token_type_ids} if self.typed else {}
        return {"input_ids": input_ids, "attention_mask": attention_mask, **types}

    def checkpoint_activations(self) -> None:
        """See RankerModule."""
        self.transformer.activation_checkpointing_enable({"use_reentrant": False})

    @property
    def vocabulary_size(self) -> int:
        """See RankerModule."""
        return int(self.transformer.config.vocab_size)

    @property
    def max_length(self) -> int:
        """Tokens of the longest sequence that the model has positions for (RoBERTa's begin after its padding id)."""
        if (table := position_table(self.transformer)) is not None:
            return table.positions
        longest = getattr(self.transformer.config, "max_position_embeddings", None)
        return longest if longest and longest > 0 else RELATIVE


def unchanged(mask: Tensor) -> Tensor:
    """The mask itself: transformers converts it as the architecture needs."""
    return mask


@contextmanager
def masked_by(model: TransformerRanker, masks: Masks) -> Iterator[None]:
    """Replace the ranker's `masks` inside the `with` block."""
    before, model.masks = model.masks, masks
    try:
        yield
    finally:
        model.masks = before


def tells_types(model: PreTrainedModel) -> bool:
    """Whether a model reads segment types: RoBERTa has one type only, ModernBERT and DistilBERT have none."""
    return getattr(model.config, "type_vocab_size", 0) > 1 and "token_type_ids" in inspect.signature(model.forward).parameters


def without_dropout(config: PretrainedConfig, dropout: float = 0.0) -> PretrainedConfig:
    """The configuration with this dropout everywhere: BERT's hidden_dropout_prob, DistilBERT's attention_dropout ..."""
    for name, value in config.to_dict().items():
        if name.endswith(("dropout", "dropout_prob")) and isinstance(value, int | float):
            setattr(config, name, dropout)
    return config


def with_attention(attention: str, load: Callable[[str], PreTrainedModel]) -> PreTrainedModel:
    """The model that `load` returns for this attention; an architecture without it (DeBERTa, MPNet) uses its own."""
    try:
        return load(attention)
    except ValueError as error:
        if attention == "eager" or "attention implementation" not in str(error):
            raise
        return load("eager")


@contextmanager
def one_clear_error(where: str | Path) -> Iterator[None]:
    """Turn any error into a ValueError of one line that names the checkpoint."""
    try:
        yield
    except Exception as error:  # configuration, weights and architecture each raise their own errors
        line = " ".join(str(error).split())[:300]  # PyTorch names every weight that differs
        raise ValueError(f"{where}: cannot be read as an encoder ({type(error).__name__}: {line})") from None
