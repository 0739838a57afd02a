"""The bi-encoder family encodes query and sentence separately: one encoder, mean pooling, cosine (Santos, equations 2 to 4).

See Santos, section 3.2. A packed sequence ``[CLS] query [SEP] sentence [SEP]`` is split back into ``[CLS] query [SEP]`` and ``[CLS]
sentence [SEP]``. So the encoder reads the same format as in the training of sentence-transformers' models, and a sentence's vector
does not depend on the query.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.modeling_utils import PreTrainedModel

from keyblock.packing import Packed
from training.declarations import EncoderShape, read_family
from training.model.cross_encoder import read_backbone, read_encoder
from training.model.ranker_module import FAMILY_FILE
from training.model.sentence_encoder import check_pooling
from training.model.transformer_ranker import ENCODER_WEIGHTS, TransformerRanker, one_clear_error, tells_types, unchanged


class Texts(NamedTuple):
    """A batch of texts for the encoder.

    Attributes:
        ids: (batch, length), token ids with specials.
        mask: (batch, length), 1 for real tokens, which stand before padding.
    """

    ids: Tensor
    mask: Tensor


class BiEncoder(TransformerRanker):
    """Scores packed (query, sentence) sequences by the cosine of two vectors. A sequence's state is both vectors, of length 1.

    Args:
        encoder: any encoder whose output has `last_hidden_state`.
        scale: the factor of the cosine.

    Attributes:
        masks: makes the encoder's attention mask; see TransformerRanker.
    """

    aggregator = None

    def __init__(self, encoder: PreTrainedModel, scale: float) -> None:
        super().__init__()
        self.encoder, self.scale = encoder, scale
        self.masks = unchanged
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
        *,
        scale: float,
    ) -> Self:
        """See RankerFamily. Also raises ValueError for a sentence encoder that does not pool by the mean of its tokens."""
        if aggregator:
            raise ValueError("model bi_encoder scores by a cosine, and has no states for a learned aggregator")
        check_pooling(Path(name_or_path))
        return cls(read_backbone(name_or_path, dropout, attention, shape), scale)

    @classmethod
    def load(cls, directory: str | Path, attention: str = "sdpa") -> Self:
        """See RankerFamily."""
        with one_clear_error(directory):
            settings = read_family(Path(directory, FAMILY_FILE))
            model = cls(read_encoder(str(directory), attention), **settings.model_dump())
        model.family = settings.describe()
        return model.eval()

    def save_weights(self, directory: str | Path) -> None:
        """Write config.json and model.safetensors, as transformers reads them."""
        self.encoder.save_pretrained(directory)

    def load_weights(self, directory: str | Path) -> None:
        """See RankerModule."""
        self.encoder.load_state_dict(load_file(Path(directory, ENCODER_WEIGHTS)))

    def start_from(self, directory: str | Path) -> None:
        """See RankerModule: the encoder of any checkpoint can be taken over."""
        with one_clear_error(directory):
            self.load_weights(directory)

    def pretrained(self) -> Iterator[nn.Parameter]:
        """See RankerModule: all parameters, which are the encoder's."""
        return self.encoder.parameters()

    @property
    def hidden_size(self) -> int:
        """See RankerModule: the size of both vectors together."""
        return 2 * int(self.encoder.config.hidden_size)

    def inputs(self, sequences: Sequence[Packed], pad_id: int, document_type: int = 1) -> tuple[Tensor, ...]:
        """See RankerModule; the types separate query and sentence, even if the encoder does not use types."""
        return super().inputs(sequences, pad_id, 1)

    def states(self, *inputs: Tensor) -> Tensor:
        """The vectors of query and sentence side by side, (batch, 2 x hidden), in fp32; equal queries are encoded once."""
        query, sentence = split_pairs(*inputs)
        (ids, mask), places = torch.stack(query).unique(dim=1, return_inverse=True)
        return torch.cat([self.vectors(Texts(ids, mask))[places], self.vectors(sentence)], dim=1)

    def vectors(self, texts: Texts) -> Tensor:
        """The mean state of each text's tokens, special tokens included, scaled to length 1, in fp32: (batch, hidden)."""
        states = self.encoder(input_ids=texts.ids, attention_mask=self.masks(texts.mask)).last_hidden_state
        with torch.autocast(states.device.type, enabled=False):
            real = texts.mask.unsqueeze(-1).float()
            return F.normalize((states.float() * real).sum(1) / real.sum(1), dim=-1)

    def scores(self, states: Tensor) -> Tensor:
        """Logits of shape (...,) from states (..., 2 x hidden), in fp32."""
        query, sentence = states.float().chunk(2, dim=-1)
        return self.scale * (query * sentence).sum(-1)


def split_pairs(ids: Tensor, types: Tensor, mask: Tensor) -> tuple[Texts, Texts]:
    """The queries and the sentences of packed sequences, each between its own special tokens; padding is zero.

    A sentence begins with the sequence's first token. Of two special tokens between query and sentence (RoBERTa), the query keeps
    one.

    Args:
        ids: (batch, length), token ids.
        types: (batch, length), 0 for ``[CLS] query [SEP]``, 1 for ``sentence [SEP]``.
        mask: (batch, length), 1 for real tokens, which stand in front.
    """
    place = torch.arange(ids.shape[1], device=ids.device)
    split = (mask * (1 - types)).sum(1, keepdim=True)
    doubled = ids.gather(1, split - 1) == ids.gather(1, split - 2)
    behind = (place - 1 + split).clamp(max=ids.shape[1] - 1)
    sentence = torch.where(place == 0, ids, ids.gather(1, behind))
    return _until(ids, split - doubled.long(), place), _until(sentence, mask.sum(1, keepdim=True) - split + 1, place)


def _until(ids: Tensor, lengths: Tensor, place: Tensor) -> Texts:
    """The first tokens of each row; `lengths`, (batch, 1), says how many."""
    mask = (place < lengths).long()
    longest = lengths.max()
    return Texts((ids * mask)[:, :longest], mask[:, :longest])
