"""Static token vectors: the vector of a text is the weighted sum of its tokens' vectors, scaled to length 1.

The initial table is that of model2vec (Minish, 2024): a sentence encoder encodes each token of the vocabulary, a principal
component analysis reduces the dimensions, and rarer tokens get a higher weight, a / (a + p), where p is the token's share of all
tokens (Arora, Liang and Ma, "A Simple but Tough-to-Beat Baseline for Sentence Embeddings", 2017).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

COMMON = 1e-3  # a: a token with this share of all tokens has the weight 1/2
LARGEST = 127  # largest value of a signed byte


class Bags(NamedTuple):
    """Texts as bags of tokens.

    Attributes:
        ids: shape (n_tokens,), token ids, text by text.
        firsts: shape (n_texts,), the index of each text's first token in `ids`.
    """

    ids: Tensor
    firsts: Tensor

    @classmethod
    def of(cls, texts: Sequence[NDArray[np.int32]]) -> "Bags":
        """Build from texts of token ids, shape (n_tokens,) each; an empty text has the vector 0."""
        firsts = np.cumsum([0, *map(len, texts[:-1])]) if texts else np.zeros(0, np.int64)
        ids = np.concatenate(texts) if texts else np.zeros(0, np.int32)
        return cls(torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(firsts))


class StaticVectors(nn.Module):
    """A vector and a weight for each token; both are trained.

    Args:
        table: shape (vocabulary, dimensions).
        weights: shape (vocabulary,), above 0.
    """

    def __init__(self, table: NDArray[np.float32], weights: NDArray[np.float32]) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.from_numpy(table.copy()))
        self.log_weights = nn.Parameter(torch.from_numpy(np.log(weights)))

    def forward(self, bags: Bags) -> Tensor:
        """The texts' vectors, shape (n_texts, dimensions); length 1, or 0 for a text without a token."""
        weights = self.log_weights[bags.ids].exp()
        return F.normalize(F.embedding_bag(bags.ids, self.table, bags.firsts, mode="sum", per_sample_weights=weights), dim=1)

    def folded(self) -> NDArray[np.float32]:
        """The table with its weights folded in, shape (vocabulary, dimensions)."""
        return (self.table * self.log_weights.exp()[:, None]).detach().cpu().numpy()


class Projection(NamedTuple):
    """A principal component analysis.

    Attributes:
        mean: shape (width,).
        axes: shape (width, dimensions).
    """

    mean: NDArray[np.float32]
    axes: NDArray[np.float32]

    @classmethod
    def of(cls, vectors: NDArray[np.float32], dimensions: int) -> "Projection":
        """The principal components of vectors, shape (n, width). Raises ValueError for fewer vectors or a smaller width."""
        if dimensions > min(vectors.shape):
            raise ValueError(f"{len(vectors)} vectors of {vectors.shape[1]} dimensions cannot be cut to {dimensions}")
        mean = vectors.mean(0)
        _, axes = np.linalg.eigh(np.cov(vectors - mean, rowvar=False))
        return cls(mean, axes[:, ::-1][:, :dimensions].astype(np.float32))

    def __call__(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        """Project vectors, shape (n, width), to shape (n, dimensions)."""
        return np.asarray((vectors - self.mean) @ self.axes, dtype=np.float32)


def rarity(texts: Sequence[NDArray[np.int32]], vocabulary: int) -> NDArray[np.float32]:
    """The weight a / (a + p) of each token, shape (vocabulary,), from texts of token ids."""
    counts = np.bincount(np.concatenate(texts), minlength=vocabulary).astype(np.float64)
    return (COMMON / (COMMON + counts / counts.sum())).astype(np.float32)


def quantised(table: NDArray[np.float32]) -> tuple[NDArray[np.int8], NDArray[np.float32]]:
    """The table as signed bytes, and each row's scale: row t is about ``scales[t] * bytes[t]``."""
    scales = np.abs(table).max(1) / LARGEST
    rounded = np.rint(table / np.where(scales > 0, scales, 1)[:, None])
    return rounded.astype(np.int8), scales.astype(np.float32)
