"""What the families around one Hugging Face model share: its inputs, its limits, and how it is read from disk or hub."""

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
"""From the mask of real tokens, (batch, length), to what a module takes as its `attention_mask`."""
RELATIVE = 1 << 20  # a model without a table of positions sets no limit


class TransformerRanker(RankerModule):
    """A ranker around one Hugging Face model.

    Attributes:
        typed: whether that tells segments apart by type.
        masks: how it is told of padding; an export spells the mask out, in operators that a graph can keep.
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
        """Tokens of the longest sequence that the model has positions for (RoBERTa's begin behind its padding id)."""
        if (table := position_table(self.transformer)) is not None:
            return table.positions
        longest = getattr(self.transformer.config, "max_position_embeddings", None)
        return longest if longest and longest > 0 else RELATIVE


def unchanged(mask: Tensor) -> Tensor:
    """The mask as it is: transformers makes of it what the architecture needs."""
    return mask


@contextmanager
def masked_by(model: TransformerRanker, masks: Masks) -> Iterator[None]:
    """Tell the ranker's model of padding in another way for a while."""
    before, model.masks = model.masks, masks
    try:
        yield
    finally:
        model.masks = before


def tells_types(model: PreTrainedModel) -> bool:
    """Whether a model tells segments apart by type: RoBERTa has one type, ModernBERT and DistilBERT have none."""
    return getattr(model.config, "type_vocab_size", 0) > 1 and "token_type_ids" in inspect.signature(model.forward).parameters


def without_dropout(config: PretrainedConfig, dropout: float = 0.0) -> PretrainedConfig:
    """The configuration with this dropout everywhere: BERT's hidden_dropout_prob, DistilBERT's attention_dropout ..."""
    for name, value in config.to_dict().items():
        if name.endswith(("dropout", "dropout_prob")) and isinstance(value, int | float):
            setattr(config, name, dropout)
    return config


def with_attention(attention: str, load: Callable[[str], PreTrainedModel]) -> PreTrainedModel:
    """The model that `load` gives with this attention; an architecture without it (DeBERTa, MPNet) takes its own."""
    try:
        return load(attention)
    except ValueError as error:
        if attention == "eager" or "attention implementation" not in str(error):
            raise
        return load("eager")


@contextmanager
def one_clear_error(where: str | Path) -> Iterator[None]:
    """Whatever is raised becomes a ValueError of one line that names the checkpoint."""
    try:
        yield
    except Exception as error:  # configuration, weights and architecture each raise kinds of their own
        line = " ".join(str(error).split())[:300]  # PyTorch names every weight that differs
        raise ValueError(f"{where}: cannot be read as an encoder ({type(error).__name__}: {line})") from None
