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
from transformers import AutoConfig, AutoModel
from transformers.modeling_utils import PreTrainedModel

from training.models.aggregators import Aggregation, build_aggregation
from training.models.reductions import padded, reduce_scores

HEAD_FILE = "head.safetensors"
AGGREGATOR_FILE, AGGREGATOR_WEIGHTS = "aggregator.json", "aggregator.safetensors"
RELATIVE = 1 << 20  # an encoder without a table of positions sets no limit


class CrossEncoder(nn.Module):
    """Scores packed (query, blocks) sequences.

    Args:
        encoder: any encoder whose output has `last_hidden_state` with [CLS] first.
        aggregator: makes one state of a document's passages, for a pipeline whose aggregator is ``states``.
    """

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
        cls, name_or_path: str, dropout: float = 0.0, attention: str = "sdpa", aggregator: Mapping[str, Any] | None = None
    ) -> Self:
        """A fresh head, and a fresh aggregator where one is described, on a pretrained encoder (hub name or local path).

        Dropout costs a third of a CPU step's speed and these runs stop long before they overfit: 0 by default.
        Raises ValueError when there is no encoder, or the aggregator does not fit it.
        """
        with _one_clear_error(name_or_path):
            config = AutoConfig.from_pretrained(name_or_path)
            for name, value in config.to_dict().items():  # BERT's hidden_dropout_prob, DistilBERT's attention_dropout ...
                if name.endswith(("dropout", "dropout_prob")) and isinstance(value, int | float):
                    setattr(config, name, dropout)
            encoder = _encoder(name_or_path, attention, config=config)
        return cls(encoder, build_aggregation(aggregator, encoder.config.hidden_size) if aggregator else None)

    @classmethod
    def load(cls, directory: str | Path, attention: str = "sdpa") -> Self:
        """Read what `save` wrote; in eval mode. Raises ValueError when it is damaged."""
        with _one_clear_error(directory):
            encoder = _encoder(str(directory), attention)
            described = Path(directory) / AGGREGATOR_FILE
            aggregator = None
            if described.exists():
                description = json.loads(described.read_text(encoding="utf-8"))
                aggregator = build_aggregation(description, encoder.config.hidden_size)
            model = cls(encoder, aggregator)
            model.load_weights(directory, encoder=False)
            return model.eval()

    def save(self, directory: str | Path) -> None:
        """Write config.json, model.safetensors (the encoder) and head.safetensors; of an aggregator its JSON and weights."""
        directory = Path(directory)
        self.encoder.save_pretrained(directory)
        save_file(self.head.state_dict(), directory / HEAD_FILE)
        if self.aggregator is not None:
            (directory / AGGREGATOR_FILE).write_text(json.dumps(self.aggregator.description), encoding="utf-8")
            save_file(self.aggregator.state_dict(), directory / AGGREGATOR_WEIGHTS)

    def load_weights(self, directory: str | Path, encoder: bool = True) -> None:
        """Load what `save` wrote into this model, whose architecture must be the same."""
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
        with _one_clear_error(directory):
            self.encoder.load_state_dict(load_file(directory / "model.safetensors"))
            self.head.load_state_dict(load_file(directory / HEAD_FILE))
            described = directory / AGGREGATOR_FILE
            description = json.loads(described.read_text(encoding="utf-8")) if described.exists() else None
            if self.aggregator is not None and description == self.aggregator.description:
                self.aggregator.load_state_dict(load_file(directory / AGGREGATOR_WEIGHTS))

    @property
    def rankers(self) -> "list[CrossEncoder]":
        """The rankers that learn independently of each other: this one, unless the module holds several."""
        return [self]

    @property
    def max_length(self) -> int:
        """Tokens of the longest sequence that the encoder has positions for (RoBERTa's begin behind its padding id)."""
        for name, module in self.encoder.named_modules():
            if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
                return module.num_embeddings - (0 if module.padding_idx is None else module.padding_idx + 1)
        longest = getattr(self.encoder.config, "max_position_embeddings", None)
        return longest if longest and longest > 0 else RELATIVE

    def states(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """[CLS] states of shape (batch, hidden), in fp32, from three (batch, length) integer tensors."""
        types = {"token_type_ids": token_type_ids} if self.typed else {}
        states: Tensor = self.encoder(input_ids=input_ids, attention_mask=attention_mask, **types).last_hidden_state[:, 0]
        return states.float()

    def scores(self, states: Tensor) -> Tensor:
        """Logits of shape (...,) from states (..., hidden): in fp32, since eight bits of a logit leave ties that nobody meant."""
        with torch.autocast(states.device.type, enabled=False):
            return self.head(states.float()).squeeze(-1)

    def outputs(self, input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """What a served graph gives: logits of shape (batch,); with an aggregator (batch, 1 + hidden), the logit first."""
        states = self.states(input_ids, token_type_ids, attention_mask)
        logits = self.scores(states)
        return logits if self.aggregator is None else torch.cat([logits.unsqueeze(-1), states], dim=1)

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """Document logits of shape (docs,) from states (docs, passages, hidden) and the mask (docs, passages) of the real ones."""
        if self.aggregator is None:
            raise ValueError("this model has no aggregator: it scores sequences, not their states")
        with torch.autocast(states.device.type, enabled=False):
            return self.scores(self.aggregator(states.float(), mask))

    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor,
        attention_mask: Tensor,
        counts: Tensor | None = None,
        reduction: str = "joint",
    ) -> Tensor:
        """Logits of shape (batch,), each sequence alone; with `counts` those of documents, shape (docs,).

        Args:
            input_ids, token_type_ids, attention_mask: (batch, length) integers.
            counts: (docs,), how many of the sequences, in order, are each document's; at least 1.
            reduction: the pipeline's aggregator, where the model has no learned one.
        """
        states = self.states(input_ids, token_type_ids, attention_mask)
        return self.scores(states) if counts is None else self.documents(states, counts, reduction)

    def documents(self, states: Tensor, counts: Tensor, reduction: str) -> Tensor:
        """Document logits of shape (docs,) from the states (sequences, hidden) of their sequences; for the rest see `forward`."""
        mask = torch.arange(int(counts.max()), device=counts.device) < counts[:, None]
        if self.aggregator is not None:
            return self.combine(padded(states, mask), mask)
        return reduce_scores(reduction, padded(self.scores(states), mask), mask)


def fastest_device() -> torch.device:
    """The GPU where PyTorch sees one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@contextmanager
def _one_clear_error(where: str | Path) -> Iterator[None]:
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
