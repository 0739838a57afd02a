"""Bases of rankers that combine passages without a learned module of the recipe, and that compare tokens: CEDR and similar ones.

A sequence's state is a row of features, and the rows of a document's passages together give its logit. The query stands at the
same place in all sequences. So the features of a query token can be summed over passages, as if the document were one text.
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_utils import PreTrainedModel

from keyblock.packing import Packed
from training.declarations import EncoderShape, read_family
from training.model.cross_encoder import read_backbone, read_encoder
from training.model.ranker_module import FAMILY_FILE, RankerModule
from training.model.transformer_ranker import ENCODER_WEIGHTS, TransformerRanker, one_clear_error, tells_types

REST_FILE = "features.safetensors"


class Combining(RankerModule):
    """Base class of these families. A state is a row of features."""

    aggregator = None

    def inputs(self, sequences: Sequence[Packed], pad_id: int, document_type: int = 1) -> tuple[Tensor, ...]:
        """See RankerModule; the types separate query and passage, even if the encoder has one type only."""
        return super().inputs(sequences, pad_id, 1)

    @property
    def combines(self) -> bool:
        """See RankerModule."""
        return True

    def scores(self, states: Tensor) -> Tensor:
        """Logits of shape (...,) from features (..., width), each as the only passage of a document."""
        documents = states.reshape(-1, 1, states.shape[-1])
        mask = torch.ones(documents.shape[:2], dtype=torch.bool, device=states.device)
        return self.combine(documents, mask).reshape(states.shape[:-1])

    def combine(self, states: Tensor, mask: Tensor) -> Tensor:
        """See RankerModule."""
        with torch.autocast(states.device.type, enabled=False):
            return self.documents_of(states.float().masked_fill(~mask.unsqueeze(-1), 0.0), mask)

    @abstractmethod
    def documents_of(self, states: Tensor, mask: Tensor) -> Tensor:
        """Logits (docs,) from features (docs, passages, width) and the mask (docs, passages) of the real ones; padding is zero."""


class Tokens(NamedTuple):
    """A batch's tokens with their states.

    Attributes:
        ids: (batch, length), token ids.
        layers: (batch, channels, length, hidden), the states of each layer, embeddings first.
        query: (batch, query_tokens) bool, which of the places 1, 2 ... hold a token of the query.
        passage: (batch, length) bool, which places hold a token of the passage or its title.
    """

    ids: Tensor
    layers: Tensor
    query: Tensor
    passage: Tensor

    @property
    def cls(self) -> Tensor:
        """The last layer's [CLS], (batch, hidden)."""
        return self.layers[:, -1, 0]

    def of_query(self, states: Tensor) -> Tensor:
        """The states of the query's places, (..., query_tokens, hidden), out of states (..., length, hidden)."""
        query = states[..., 1 : 1 + self.query.shape[1], :]
        return F.pad(query, (0, 0, 0, self.query.shape[1] - query.shape[-2]))  # a sequence may be shorter than the longest query

    def cosines(self) -> Tensor:
        """Cosines of query tokens with passage tokens, (batch, channels, query_tokens, length); 0 where either is no token."""
        states = F.normalize(self.layers, dim=-1)
        found = self.of_query(states) @ states.transpose(-1, -2)
        return found * (self.query[:, None, :, None] & self.passage[:, None, None, :])


class TokenRanker(Combining, TransformerRanker):
    """Base class of these families: finds the query's and the passage's tokens, and reads and writes checkpoints.

    Args:
        encoder: any encoder with hidden states.
        query_tokens: the largest number of a query's tokens that are compared.
    """

    def __init__(self, encoder: PreTrainedModel, query_tokens: int) -> None:
        super().__init__()
        self.encoder, self.query_tokens = encoder, query_tokens
        self.typed = tells_types(encoder)

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
        aggregator: Any = None,
        shape: EncoderShape | None = None,
        **settings: Any,
    ) -> Self:
        """See RankerFamily. Also raises ValueError for an `aggregator`: these families combine passages themselves."""
        if aggregator:
            raise ValueError(f"{cls.__name__} combines passages itself: leave the module of states {aggregator['name']!r} out")
        return cls(read_backbone(name_or_path, dropout, attention, shape), **settings)

    @classmethod
    def load(cls, directory: str | Path, attention: str = "sdpa") -> Self:
        """See RankerFamily."""
        with one_clear_error(directory):
            settings = read_family(Path(directory, FAMILY_FILE))
            model = cls(read_encoder(str(directory), attention), **settings.model_dump())
            model.family = settings.describe()
            model.load_rest(directory)
        return model.eval()

    def save_weights(self, directory: str | Path) -> None:
        """Write config.json, model.safetensors (the encoder) and features.safetensors (all other weights)."""
        self.encoder.save_pretrained(directory)
        save_file(self.rest(), Path(directory, REST_FILE))

    def load_weights(self, directory: str | Path) -> None:
        """See RankerModule."""
        self.encoder.load_state_dict(load_file(Path(directory, ENCODER_WEIGHTS)))
        self.load_rest(directory)

    def start_from(self, directory: str | Path) -> None:
        """Take over the encoder of any checkpoint, and all other weights of one of the same family and settings.

        Raises ValueError for another encoder.
        """
        with one_clear_error(directory):
            self.encoder.load_state_dict(load_file(Path(directory, ENCODER_WEIGHTS)))
            if Path(directory, REST_FILE).exists():
                theirs = load_file(Path(directory, REST_FILE))
                if {name: value.shape for name, value in theirs.items()} == {n: v.shape for n, v in self.rest().items()}:
                    self.load_rest(directory)

    def rest(self) -> dict[str, Tensor]:
        """All weights that are not the encoder's."""
        return {name: value for name, value in self.state_dict().items() if not name.startswith("encoder.")}

    def load_rest(self, directory: str | Path) -> None:
        """Load the weights that `rest` gave. Raises ValueError for other weights."""
        missing, unknown = self.load_state_dict(load_file(Path(directory, REST_FILE)), strict=False)
        if unknown or any(not name.startswith("encoder.") for name in missing):
            raise ValueError(f"{REST_FILE} holds other weights than this family's")

    def pretrained(self) -> Iterator[nn.Parameter]:
        """See RankerModule: the encoder's parameters."""
        return self.encoder.parameters()

    @property
    def channels(self) -> int:
        """The number of layers whose states are compared: the embeddings and the encoder's layers."""
        return int(self.encoder.config.num_hidden_layers) + 1

    def states(self, *inputs: Tensor) -> Tensor:
        """Features of shape (batch, width), in fp32: see `features`."""
        return self.of_layers(self.encoder(**self.named(*inputs), output_hidden_states=True).hidden_states, *inputs)

    def of_layers(self, layers: Sequence[Tensor], *inputs: Tensor) -> Tensor:
        """The features of `inputs`, from their states (batch, length, hidden) in each of the `channels`."""
        input_ids, token_type_ids, attention_mask = inputs
        query, passage = segments(token_type_ids, attention_mask, self.query_tokens)
        with torch.autocast(input_ids.device.type, enabled=False):
            return self.features(Tokens(input_ids, torch.stack(list(layers), dim=1).float(), query, passage))

    @abstractmethod
    def features(self, tokens: Tokens) -> Tensor:
        """Features of each sequence, (batch, width), `width` being `hidden_size`."""


def segments(types: Tensor, mask: Tensor, query_tokens: int) -> tuple[Tensor, Tensor]:
    """Masks of the query's and the passage's tokens, without special tokens: see Tokens.

    Args:
        types: (batch, length), 0 for ``[CLS] query [SEP]``, 1 for ``passage [SEP]``.
        mask: (batch, length), 1 for real tokens, which stand before padding.
        query_tokens: the number of places after [CLS] in the query's mask.
    """
    place = torch.arange(types.shape[1], device=types.device)
    end, split = mask.sum(1, keepdim=True), (mask * (1 - types)).sum(1, keepdim=True)
    passage = (place >= split) & (place < end - 1)
    return torch.arange(1, 1 + query_tokens, device=types.device) < split - 1, passage
