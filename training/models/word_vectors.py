"""Rankers on the word vectors of a backbone, without its transformer: models of the years before BERT, and kin."""

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from training.declarations import read_family
from training.models.cross_encoder import read_encoder
from training.models.ranker_module import FAMILY_FILE, RankerModule
from training.models.token_ranker import segments
from training.models.transformer_ranker import ENCODER_WEIGHTS, RELATIVE, one_clear_error


class Texts(NamedTuple):
    """A batch's queries and passages, each from its first token on and without special tokens.

    Attributes:
        query: (batch, query_tokens), token ids.
        asked: (batch, query_tokens) bool, which of them are real.
        passage: (batch, length), token ids.
        shown: (batch, length) bool, which of them are real.
    """

    query: Tensor
    asked: Tensor
    passage: Tensor
    shown: Tensor


class WordTable(RankerModule):
    """What these families share: a table of word vectors, and how a model is kept.

    Args:
        table: (vocabulary, size), the vectors.
        trainable: whether they learn.
    """

    aggregator = None

    def __init__(self, table: Tensor, trainable: bool = True) -> None:
        super().__init__()
        self.table = nn.Embedding.from_pretrained(table, freeze=not trainable)

    @classmethod
    def from_backbone(
        cls, name_or_path: str, _dropout: float = 0.0, attention: str = "sdpa", aggregator: Any = None, **settings: Any
    ) -> Self:
        """See RankerFamily: the backbone's word vectors under fresh layers. Raises ValueError for an `aggregator`, too."""
        if aggregator:
            raise ValueError(
                f"{cls.__name__} has no use for a learned aggregator: leave the module of states {aggregator['name']!r} out"
            )
        with one_clear_error(name_or_path):
            words = read_encoder(name_or_path, attention).get_input_embeddings().weight
        return cls(words.detach().clone().float(), **settings)

    @classmethod
    def load(cls, directory: str | Path, _attention: str = "sdpa") -> Self:
        """See RankerFamily."""
        with one_clear_error(directory):
            settings, weights = read_family(Path(directory, FAMILY_FILE)), load_file(Path(directory, ENCODER_WEIGHTS))
            model = cls(weights["table.weight"], **settings.model_dump())
            model.family = settings.describe()
            model.load_state_dict(weights)
        return model.eval()

    def save_weights(self, directory: str | Path) -> None:
        """Write model.safetensors, word vectors and all."""
        save_file(self.state_dict(), Path(directory, ENCODER_WEIGHTS))

    def load_weights(self, directory: str | Path) -> None:
        """See RankerModule."""
        self.load_state_dict(load_file(Path(directory, ENCODER_WEIGHTS)))

    def start_from(self, directory: str | Path) -> None:
        """Take over all of a checkpoint of the same family. Raises ValueError for another one, other settings or vocabulary."""
        with one_clear_error(directory):
            self.load_weights(directory)

    def pretrained(self) -> Iterator[nn.Parameter]:
        """The word vectors."""
        return self.table.parameters()

    def checkpoint_activations(self) -> None:
        """There are none worth computing twice."""

    @property
    def max_length(self) -> int:
        """No limit: no family here has a table of positions for whole sequences."""
        return RELATIVE

    @property
    def vocabulary_size(self) -> int:
        """See RankerModule."""
        return self.table.num_embeddings


class WordRanker(WordTable):
    """A family that makes features of a query's and a passage's tokens, each from its first token on.

    Args:
        table: (vocabulary, size), the vectors.
        query_tokens: read, at most.
    """

    def __init__(self, table: Tensor, query_tokens: int) -> None:
        super().__init__(table)
        self.query_tokens = query_tokens

    def states(self, *inputs: Tensor) -> Tensor:
        """Features of shape (batch, width), in fp32: see `features`."""
        input_ids, token_type_ids, attention_mask = inputs
        with torch.autocast(input_ids.device.type, enabled=False):
            return self.features(texts(input_ids, token_type_ids, attention_mask, self.query_tokens))

    @abstractmethod
    def features(self, texts: Texts) -> Tensor:
        """Features of each sequence, (batch, width), `width` being `hidden_size`."""


def texts(input_ids: Tensor, token_type_ids: Tensor, attention_mask: Tensor, query_tokens: int) -> Texts:
    """Query and passage of ``[CLS] query [SEP] passage [SEP]``.

    Args:
        input_ids: (batch, length).
        token_type_ids: (batch, length), 0 for ``[CLS] query [SEP]``, 1 for ``passage [SEP]``.
        attention_mask: (batch, length), 1 for real tokens, which stand in front.
        query_tokens: of a longer query the first.
    """
    asked, passage = segments(token_type_ids, attention_mask, query_tokens)
    query = F.pad(input_ids, (0, query_tokens))[:, 1 : 1 + query_tokens]  # a sequence may be shorter than a query can be
    place = torch.arange(input_ids.shape[1], device=input_ids.device)
    split = (attention_mask * (1 - token_type_ids)).sum(1, keepdim=True)
    source = (place + split).clamp(max=input_ids.shape[1] - 1)
    return Texts(query, asked, input_ids.gather(1, source), place < passage.sum(1, keepdim=True))


def within(places: Tensor, length: int) -> Tensor:
    """The nearest of so many places, of any shape: those before the first are the first, those behind the last the last.

    Not by `clamp(min=0)`: ONNX Runtime's OpenVINO makes 0 of all that a graph bounds by a least integer alone.
    """
    return torch.where(places < 0, 0, places).clamp(max=length - 1)
