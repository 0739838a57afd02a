"""The fast student of IDCM (ESM; Hofstätter et al., SIGIR 2021): word vectors, one convolution, kernel pooling.

CK is Conv-KNRM (Dai et al., WSDM 2018) with one window: each token's vector is mixed with those behind it, query and passage are
compared by cosines, and eleven kernels count how many tokens of the passage are how near to each token of the query (K-NRM, Xiong
et al., SIGIR 2017). Kernels and their widths are those of the code of IDCM's authors; it reads BERT's whole
embedding layer, and this the word vectors alone, which know no places.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from keyblock.packing import Packed
from training.models.word_vectors import WordTable

CENTRES = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)  # of the kernels, cosines
WIDTH = 0.1  # sigma of each
LEAST = 1e-4  # of a soft count whose logarithm is taken


class Ck(WordTable):
    """Scores packed (query, passage) sequences by how near their tokens are to each other; a state is the eleven pooled kernels.

    Args:
        table: shape (vocabulary, size), of the words.
        window: tokens that the convolution sees at once.
        filters: of the convolution.
        trainable: whether the vectors are trained.
    """

    family: Mapping[str, Any] = {"name": "ck"}

    def __init__(self, table: Tensor, window: int = 3, filters: int = 128, trainable: bool = False) -> None:
        super().__init__(table, trainable)
        self.convolution = nn.Conv1d(table.shape[1], filters, window)
        self.scale = nn.Parameter(torch.ones(len(CENTRES)))  # of the soft counts, by kernel
        self.head = nn.Linear(len(CENTRES), 1)
        nn.init.uniform_(self.head.weight, -0.01, 0.01)  # sums over a query's tokens are large

    @property
    def hidden_size(self) -> int:
        """See RankerModule: one feature a kernel."""
        return len(CENTRES)

    def inputs(self, sequences: Sequence[Packed], pad_id: int, document_type: int = 1) -> tuple[Tensor, ...]:
        """See RankerModule. Raises ValueError for a tokenizer that gives query and passage the same type id (RoBERTa's)."""
        if not document_type:
            raise ValueError("model ck tells query and passage apart by type ids: take a backbone whose tokenizer has BERT's")
        return super().inputs(sequences, pad_id, document_type)

    def states(self, *inputs: Tensor) -> Tensor:
        """Pooled kernels of shape (batch, 11), in fp32, from three (batch, length) integer tensors: see `pooled`."""
        input_ids, token_type_ids, attention_mask = inputs
        query, passage = text_masks(token_type_ids, attention_mask)
        longest = query.sum(1).max() + 1  # with [CLS] in front
        vectors = self.table(input_ids)
        asked = self._mixed(vectors[:, :longest], query[:, :longest])
        with torch.autocast(vectors.device.type, enabled=False):
            cosines = asked.float() @ self._mixed(vectors, passage).float().transpose(1, 2)  # (B, Q, L)
            return pooled(cosines, query[:, :longest], passage, self.scale)

    def _mixed(self, vectors: Tensor, real: Tensor) -> Tensor:
        """Unit vectors (B, L, filters) of real tokens and those behind them, from word vectors (B, L, size)."""
        behind = self.convolution.kernel_size[0] - 1
        shown = F.pad((vectors * real.unsqueeze(-1)).transpose(1, 2), (0, behind))  # (B, size, L + behind)
        return F.normalize(self.convolution(shown).relu().transpose(1, 2), dim=-1)

    def scores(self, states: Tensor) -> Tensor:
        """Logits of shape (...,) from states (..., 11), in fp32."""
        with torch.autocast(states.device.type, enabled=False):
            return self.head(states.float()).squeeze(-1)


def text_masks(types: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """Where the query's and the passage's own tokens stand, two bools of shape (batch, length), without [CLS] and both [SEP].

    Args:
        types: (batch, length), 0 for ``[CLS] query [SEP]``, and above for ``passage [SEP]``.
        mask: (batch, length), 1 for real tokens; padding stands behind them.
    """
    real = mask > 0
    passage = real & (types > 0)
    query = real & ~passage
    first = torch.arange(mask.shape[1], device=mask.device) == 0
    return query & _followed(query) & ~first, passage & _followed(passage)


def _followed(part: Tensor) -> Tensor:
    """Whether the next position belongs to the same part, (batch, length): the last one of each is a [SEP]."""
    return F.pad(part[:, 1:], (0, 1))


def pooled(cosines: Tensor, query: Tensor, passage: Tensor, scale: Tensor) -> Tensor:
    """Of each kernel the sum over the query's tokens of the logarithm of how many tokens of the passage are that near, (batch, 11).

    Args:
        cosines: (batch, query length, passage length).
        query: (batch, query length) bool, which of its tokens count.
        passage: (batch, passage length) bool, which of its tokens count.
        scale: (11,), a factor of each kernel's counts.
    """
    centres = torch.tensor(CENTRES, dtype=cosines.dtype, device=cosines.device)
    near = torch.exp(-((cosines.unsqueeze(-1) - centres) ** 2) / (2 * WIDTH**2))  # (B, Q, P, K)
    counts = (near * passage[:, None, :, None]).sum(2) * scale  # (B, Q, K)
    return (counts.clamp(min=LEAST).log() * query.unsqueeze(-1)).sum(1)
