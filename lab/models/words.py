"""Base of rankers on the word vectors of a backbone, without its transformer: models from before BERT, and similar ones."""

from abc import abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional as F

from lab.models.tokens import segments
from training.declarations import read_family
from training.model.cross_encoder import read_encoder
from training.model.ranker_module import FAMILY_FILE, RankerModule
from training.model.transformer_ranker import ENCODER_WEIGHTS, RELATIVE, one_clear_error


class Texts(NamedTuple):
    """A batch's queries and passages, each moved to the start of its row, without special tokens.

    Attributes:
        query: (batch, query_tokens), token ids.
        query_mask: (batch, query_tokens) bool, which of them are real.
        passage: (batch, length), token ids.
        passage_mask: (batch, length) bool, which of them are real.
    """

    query: Tensor
    query_mask: Tensor
    passage: Tensor
    passage_mask: Tensor


class WordTable(RankerModule):
    """Base class of these families: has a table of word vectors, and reads and writes checkpoints.

    Args:
        table: (vocabulary, size), the word vectors.
        trainable: whether they are trained.
    """

    aggregator = None

    def __init__(self, table: Tensor, trainable: bool = True) -> None:
        super().__init__()
        self.table = nn.Embedding.from_pretrained(table, freeze=not trainable)

    @classmethod
    def from_backbone(
        cls, name_or_path: str, _dropout: float = 0.0, attention: str = "sdpa", aggregator: Any = None, **settings: Any
    ) -> Self:
        """See RankerFamily: the backbone's word vectors under fresh layers. Also raises ValueError for an `aggregator`."""
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
        """Write model.safetensors, which holds the word vectors, too."""
        save_file(self.state_dict(), Path(directory, ENCODER_WEIGHTS))

    def load_weights(self, directory: str | Path) -> None:
        """See RankerModule."""
        self.load_state_dict(load_file(Path(directory, ENCODER_WEIGHTS)))

    def start_from(self, directory: str | Path) -> None:
        """Take over all weights of a checkpoint. Raises ValueError for another family, other settings or another vocabulary."""
        with one_clear_error(directory):
            self.load_weights(directory)

    def pretrained(self) -> Iterator[nn.Parameter]:
        """See RankerModule: the word vectors."""
        return self.table.parameters()

    def checkpoint_activations(self) -> None:
        """Do nothing: the activations are too small to compute twice."""

    @property
    def max_length(self) -> int:
        """No limit: no family here has a table of positions for whole sequences."""
        return RELATIVE

    @property
    def vocabulary_size(self) -> int:
        """See RankerModule."""
        return self.table.num_embeddings


class WordRanker(WordTable):
    """Base class of families that compute features from the tokens of query and passage.

    Args:
        table: (vocabulary, size), the word vectors.
        query_tokens: the largest number of a query's tokens that are read.
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
        attention_mask: (batch, length), 1 for real tokens, which stand before padding.
        query_tokens: the number of a query's tokens; of a longer query the first.
    """
    query_mask, passage = segments(token_type_ids, attention_mask, query_tokens)
    query = F.pad(input_ids, (0, query_tokens))[:, 1 : 1 + query_tokens]  # a sequence may be shorter than the longest query
    place = torch.arange(input_ids.shape[1], device=input_ids.device)
    split = (attention_mask * (1 - token_type_ids)).sum(1, keepdim=True)
    source = (place + split).clamp(max=input_ids.shape[1] - 1)
    return Texts(query, query_mask, input_ids.gather(1, source), place < passage.sum(1, keepdim=True))


def clamped(places: Tensor, length: int) -> Tensor:
    """Places of any shape, clamped to 0 ... length - 1.

    Does not use `clamp(min=0)`: ONNX Runtime's OpenVINO gives 0 for everything that a graph bounds only by a smallest integer.
    """
    return torch.where(places < 0, 0, places).clamp(max=length - 1)
