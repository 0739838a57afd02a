"""Base of the families around one Hugging Face model: its inputs, its limits, and reading it from disk or hub."""

import inspect
from abc import abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor
from transformers import PretrainedConfig
from transformers.modeling_utils import PreTrainedModel

from training.models.ranker_module import RankerModule
from training.models.reshaping import position_table

ENCODER_WEIGHTS = "model.safetensors"
Masks = Callable[[Tensor], Any]
"""Makes a module's `attention_mask` from the mask of real tokens, (batch, length)."""
FULL = ("albert", "bert", "camembert", "distilbert", "electra", "roberta", "xlm-roberta")
"""Encoders, by transformers' names, whose layers all accept one mask over pairs of tokens."""
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
