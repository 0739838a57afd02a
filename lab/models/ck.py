"""The fast student of IDCM (ESM; Hofstätter et al., SIGIR 2021): word vectors, one convolution, kernel pooling.

CK is Conv-KNRM (Dai et al., WSDM 2018) with one window. A convolution mixes each token's vector with those of the next tokens,
query and passage are compared by cosines, and eleven kernels softly count the passage's tokens by their cosine with each query
token (K-NRM, Xiong et al., SIGIR 2017). Kernels and widths are those of the code of IDCM's authors. Their code reads BERT's whole
embedding layer; this one reads the word vectors alone, without positions.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from keyblock.packing import Packed
from lab.models.cedr import MEANS as CENTRES
from lab.models.tokens import segments
from lab.models.words import WordTable

WIDTH = 0.1  # sigma of each kernel
LEAST = 1e-4  # lower bound of a soft count, before its logarithm


class Ck(WordTable):
    """Scores packed (query, passage) sequences by the cosines of their tokens; a state holds the eleven pooled kernels.

    Args:
        table: the word vectors, shape (vocabulary, size).
        window: tokens in a window of the convolution.
        filters: filters of the convolution.
        trainable: whether the word vectors are trained.
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
        query, passage = segments((token_type_ids > 0).long(), attention_mask, input_ids.shape[1] - 1)
        query = F.pad(query, (1, 0))[:, : 1 + query.sum(1).max()]  # with [CLS] in front: it is never empty
        vectors = self.table(input_ids)
        query_vectors = self._mixed(vectors[:, : query.shape[1]], query)
        with torch.autocast(vectors.device.type, enabled=False):
            cosines = query_vectors.float() @ self._mixed(vectors, passage).float().transpose(1, 2)  # (B, Q, L)
            return pooled(cosines, query, passage, self.scale)

    def _mixed(self, vectors: Tensor, real: Tensor) -> Tensor:
        """Unit vectors (B, L, filters) of real tokens mixed with the next ones, from word vectors (B, L, size)."""
        behind = self.convolution.kernel_size[0] - 1
        padded = F.pad((vectors * real.unsqueeze(-1)).transpose(1, 2), (0, behind))  # (B, size, L + behind)
        return F.normalize(self.convolution(padded).relu().transpose(1, 2), dim=-1)

    def scores(self, states: Tensor) -> Tensor:
        """Logits of shape (...,) from states (..., 11), in fp32."""
        with torch.autocast(states.device.type, enabled=False):
            return self.head(states.float()).squeeze(-1)


def pooled(cosines: Tensor, query: Tensor, passage: Tensor, scale: Tensor) -> Tensor:
    """The pooled kernels, (batch, 11): the logarithms of each kernel's soft counts, summed over the query's tokens.

    Args:
        cosines: (batch, query length, passage length).
        query: (batch, query length) bool, the query's tokens that count.
        passage: (batch, passage length) bool, the passage's tokens that count.
        scale: (11,), a factor of each kernel's counts.
    """
    centres = torch.tensor(CENTRES, dtype=cosines.dtype, device=cosines.device)
    near = torch.exp(-((cosines.unsqueeze(-1) - centres) ** 2) / (2 * WIDTH**2))  # (B, Q, P, K)
    counts = (near * passage[:, None, :, None]).sum(2) * scale  # (B, Q, K)
    return (counts.clamp(min=LEAST).log() * query.unsqueeze(-1)).sum(1)
