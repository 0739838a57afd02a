"""What is known of a query and of a document before they meet: token ids, block bounds, terms."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

QUANTUM = 127  # a block's vector of length 1 is kept as whole numbers from -127 to 127


class Similar(Protocol):
    """How near tokens are to those of a query."""

    def of(self, token_ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """A row for each of these tokens: shape (n_tokens, n), 0 at least, of a query of n tokens.

        What is above the vocabulary is as its last token.
        """

    @property
    def compiled(self) -> Any:
        """The same as `keyblock_native` takes it, where that is installed."""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedQuery:
    """A query ready to meet documents.

    Attributes:
        token_ids: shape (n_tokens,), capped at the pipeline's `query_tokens`, or as `long_query` has it.
        terms: shape (n_terms,), keys of its distinct terms.
        truncated: whether the model does not read all of it.
        vector: shape (dimensions,), of length 1, or 0 where it holds nothing known; None where the pipeline has no encoder.
        similar: how near tokens are to its own, each times its share of the query; None where no selector asks for it. See
            `keyblock.encoders.Encoder.similar`.
        reads: what of it the model reads, in words, where that is not all.
    """

    token_ids: NDArray[np.int32]
    terms: NDArray[np.int64]
    truncated: bool = False
    vector: NDArray[np.float32] | None = None
    similar: Similar | None = None
    reads: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class PreparedDocument:
    """A document cut into blocks.

    Attributes:
        token_ids: shape (n_tokens,).
        bounds: shape (n_blocks, 2); block i is tokens ``bounds[i, 0]:bounds[i, 1]``; neighbours may overlap.
        starts, ends: shape (n_blocks,); the block's offsets in the text as given, in Unicode code points.
        terms: shape (n_terms,), term keys block by block.
        term_bounds: shape (n_blocks + 1,), into `terms`.
        title_ids: shape (n_title_tokens,), capped at the pipeline's `title_tokens`.
        vectors: shape (n_blocks, dimensions), times QUANTUM, of the blocks; None where the pipeline has no encoder.
    """

    token_ids: NDArray[np.int32]
    bounds: NDArray[np.int32]
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]
    terms: NDArray[np.int64]
    term_bounds: NDArray[np.int32]
    title_ids: NDArray[np.int32]
    vectors: NDArray[np.int8] | None = None

    def having(self, vectors: NDArray[np.int8]) -> "PreparedDocument":
        """The same document with these; in a third of the time that `dataclasses.replace` takes."""
        terms = self.terms, self.term_bounds
        return PreparedDocument(self.token_ids, self.bounds, self.starts, self.ends, *terms, self.title_ids, vectors)

    @property
    def n_blocks(self) -> int:
        """How many blocks; 0 for a document without a token."""
        return len(self.bounds)

    @property
    def nbytes(self) -> int:
        """Bytes of its arrays."""
        arrays = (self.token_ids, self.bounds, self.starts, self.ends, self.terms, self.term_bounds, self.title_ids)
        return sum(array.nbytes for array in arrays) + (0 if self.vectors is None else self.vectors.nbytes)
