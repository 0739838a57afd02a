"""The ranker: a Hugging Face encoder and one linear layer on [CLS] (KeyB section 4.1, step 4).

For PARADE a learned module between them makes one state of a document's passages (KeyB section 4.2).
"""

import inspect
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import AutoConfig, AutoModel, PretrainedConfig
from transformers.modeling_utils import PreTrainedModel

from training.declarations import STATE_AGGREGATORS
from training.models.aggregators import Aggregation, build_aggregation
from training.models.ranker_module import RankerModule

HEAD_FILE = "head.safetensors"
AGGREGATOR_FILE, AGGREGATOR_WEIGHTS = "aggregator.json", "aggregator.safetensors"
RELATIVE = 1 << 20  # an encoder without a table of positions sets no limit


class CrossEncoder(RankerModule):
    """Scores packed (query, blocks) sequences.

    Args:
        encoder: any encoder whose output has `last_hidden_state` with [CLS] first.
        aggregator: makes one state of a document's passages, for a pipeline whose aggregator is ``states``.
    """

    family: Mapping[str, Any] = {"name": "cross_encoder"}

    def __init__(self, encoder: PreTrainedModel, aggregator: Aggregation | None = None) -> None:
        super().__init__()
        self.encoder = encoder
        self.aggregator = aggregator
        # RoBERTa has one segment type, ModernBERT and DistilBERT none: such encoders see no types
        self.typed = (
            getattr(encoder.config, "type_vocab_size", 0) > 1 and "token_type_ids" in inspect.signature(encoder.forward).parameters
        )
        self.head = nn.Linear(encoder.config.hidden_size, 1)
        nn.init.normal_(self.head.weight, std=0.02)
        nn.init.zeros_(self.head.bias)

    @classmethod
    def from_backbone(
        cls,
        name_or_path: str,
        dropout: float = 0.0,
        attention: str = "sdpa",
        aggregator: Mapping[str, Any] | None = None,
    ) -> Self:
        """See RankerFamily. Dropout costs a third of a CPU step's speed, and these runs stop long before they overfit."""
        with one_clear_error(name_or_path):
            config = without_dropout(AutoConfig.from_pretrained(name_or_path), dropout)
            encoder = _encoder(name_or_path, attention, config=config)
        return cls(encoder, build_aggregation(aggregator, encoder.config.hidden_size) if aggregator else None)

    @classmethod
    def load(cls, directory: str | Path, attention: str = "sdpa") -> Self:
        """See RankerFamily."""
        with one_clear_error(directory):
            encoder = _encoder(str(directory), attention)
            described = Path(directory) / AGGREGATOR_FILE
            aggregator = None
            if described.exists():
                description = json.loads(described.read_text(encoding="utf-8"))
                aggregator = build_aggregation(description, encoder.config.hidden_size)
            model = cls(encoder, aggregator)
            model.load_weights(directory, encoder=False)
            return model.eval()

    def save_weights(self, directory: str | Path) -> None:
        """Write config.json, model.safetensors (the encoder) and head.safetensors; of an aggregator its JSON and weights."""
        directory = Path(directory)
        self.encoder.save_pretrained(directory)
        save_file(self.head.state_dict(), directory / HEAD_FILE)
        if self.aggregator is not None:
            (directory / AGGREGATOR_FILE).write_text(json.dumps(self.aggregator.description), encoding="utf-8")
            save_file(self.aggregator.state_dict(), directory / AGGREGATOR_WEIGHTS)

    def load_weights(self, directory: str | Path, encoder: bool = True) -> None:
        """See RankerModule; without the encoder where that is loaded already."""
        directory = Path(directory)
        if encoder:
            self.encoder.load_state_dict(load_file(directory / "model.safetensors"))
        self.head.load_state_dict(load_file(directory / HEAD_FILE))
        if self.aggregator is not None:
            self.aggregator.load_state_dict(load_file(directory / AGGREGATOR_WEIGHTS))

    def start_from(self, directory: str | Path) -> None:
        """Take over another checkpoint's encoder and head, and its aggregator where both have the same one.

        An aggregator of another kind stays fresh. Raises ValueError when the encoders differ.
        """
        directory = Path(directory)
        with one_clear_error(directory):
            self.encoder.load_state_dict(load_file(directory / "model.safetensors"))
            self.head.load_state_dict(load_file(directory / HEAD_FILE))
            described = directory / AGGREGATOR_FILE
            if self.aggregator is not None and described.exists():
                theirs = STATE_AGGREGATORS.create(json.loads(described.read_text(encoding="utf-8")))
                if theirs.describe() == self.aggregator.description:
                    self.aggregator.load_state_dict(load_file(directory / AGGREGATOR_WEIGHTS))

    def pretrained(self) -> Iterator[nn.Parameter]:
        """The encoder's, and an aggregator's that come from one."""
        yield from self.encoder.parameters()
        if self.aggregator is not None:
            yield from self.aggregator.pretrained

    def checkpoint_activations(self) -> None:
        """See RankerModule."""
        self.encoder.activation_checkpointing_enable({"use_reentrant": False})

    @property
    def hidden_size(self) -> int:
        """See RankerModule."""
        return int(self.encoder.config.hidden_size)

    @property
    def vocabulary_size(self) -> int:
        """See RankerModule."""
        return int(self.encoder.config.vocab_size)

    @property
    def max_length(self) -> int:
        """Tokens of the longest sequence that the encoder has positions for."""
        return longest_sequence(self.encoder)

    def states(self, *inputs: Tensor) -> Tensor:
        """[CLS] states of shape (batch, hidden), in fp32, from three (batch, length) integer tensors."""
        input_ids, token_type_ids, attention_mask = inputs
        types = {"token_type_ids": token_type_ids} if self.typed else {}
        states: Tensor = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **types).last_hidden_state[:, 0]
        return states.float()

    def scores(self, states: Tensor) -> Tensor:
        """Logits of shape (...,) from states (..., hidden): in fp32, since eight bits of a logit leave ties that nobody meant."""
        with torch.autocast(states.device.type, enabled=False):
            return self.head(states.float()).squeeze(-1)


def longest_sequence(encoder: PreTrainedModel) -> int:
    """Tokens of the longest sequence that an encoder has positions for (RoBERTa's begin behind its padding id)."""
    for name, module in encoder.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
    longest = getattr(encoder.config, "max_position_embeddings", None)
    return longest if longest and longest > 0 else RELATIVE


def without_dropout(config: PretrainedConfig, dropout: float = 0.0) -> PretrainedConfig:
    """The configuration with this dropout everywhere: BERT's hidden_dropout_prob, DistilBERT's attention_dropout ..."""
    for name, value in config.to_dict().items():
        if name.endswith(("dropout", "dropout_prob")) and isinstance(value, int | float):
            setattr(config, name, dropout)
    return config


@contextmanager
def one_clear_error(where: str | Path) -> Iterator[None]:
    """Whatever is raised becomes a ValueError of one line that names the checkpoint."""
    try:
        yield
    except Exception as error:  # configuration, weights and architecture each raise kinds of their own
        line = " ".join(str(error).split())[:300]  # PyTorch names every weight that differs
        raise ValueError(f"{where}: cannot be read as an encoder ({type(error).__name__}: {line})") from None


def _encoder(name_or_path: str, attention: str, pooler: bool = False, **options: object) -> PreTrainedModel:
    """The encoder alone: a pooler, where the architecture has one, is neither used nor kept.

    An architecture that does not have the attention asked for (DeBERTa, MPNet) takes its own.
    """
    without = {} if pooler else {"add_pooling_layer": False}
    try:
        return AutoModel.from_pretrained(name_or_path, attn_implementation=attention, **without, **options)
    except TypeError:  # architectures without a pooler do not know the option
        if pooler:
            raise
        return _encoder(name_or_path, attention, pooler=True, **options)
    except ValueError as error:
        if attention == "eager" or "attention implementation" not in str(error):
            raise
        return _encoder(name_or_path, "eager", pooler, **options)
