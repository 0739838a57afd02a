"""Prepared queries and documents, before a pair is matched: token ids, block bounds, terms."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

QUANTUM = 127  # a block's vector of length 1 is stored as integers from -127 to 127


class Similar(Protocol):
    """How near tokens are to the tokens of a query."""

    def of(self, token_ids: NDArray[np.int32]) -> NDArray[np.float32]:
        """A row for each of these tokens, none below 0: shape (n_tokens, n) for a query of n tokens.

        Ids above the vocabulary get the row of its last token.
        """

    @property
    def compiled(self) -> Any:
        """The same for `keyblock_native`, if that is installed."""


def content_digest(title: str, text: str, prepared_by: bytes = b"") -> bytes:
    """16 bytes for a document's title and text, which cannot run together, and for the fingerprint of who prepares it, if given."""
    digest = blake2b(len(title).to_bytes(8, "little"), digest_size=16, salt=prepared_by)
    for part in (title, text):
        digest.update(part.encode("utf-8", "surrogatepass"))
    return digest.digest()


@dataclass(frozen=True, slots=True, eq=False)
class PreparedQuery:
    """A query ready to be matched with documents.

    Attributes:
        token_ids: shape (n_tokens,), capped at the pipeline's `query_tokens`, or chosen by `long_query`.
        terms: shape (n_terms,), keys of its distinct terms.
        truncated: whether the model reads only a part of it.
        vector: shape (dimensions,), of length 1, or 0 if the encoder knows none of its tokens; None without an encoder.
        similar: how near tokens are to the query's, each times its share of the query; None if no selector needs it. See
            `keyblock.encoders.Encoder.similar`.
        reads: which part the model reads, in words; empty if it reads all.
        mended: the query with likely typing errors mended; none without.
    """

    token_ids: NDArray[np.int32]
    terms: NDArray[np.int64]
    truncated: bool = False
    vector: NDArray[np.float32] | None = None
    similar: Similar | None = None
    reads: str = ""
    mended: "Mended | None" = None

    def beside(self, document: "PreparedDocument") -> "PreparedQuery":
        """The query as it is read beside a document: as typed if the document has one of its unknown words, then a name."""
        if self.mended is None or np.isin(self.mended.unknown, document.terms).any():
            return self
        return self.mended.query


@dataclass(frozen=True, slots=True, eq=False)
class Mended:
    """A query whose unknown words are taken for typing errors; see `keyblock.text.analyzer.Spelling`.

    Attributes:
        query: with the words that were likely meant, and the terms of both spellings, as the typed query has them.
        words: the unknown words, each with the one that was likely meant.
        unknown: keys of the unknown words' terms, shape (n_unknown,).
    """

    query: PreparedQuery
    words: Mapping[str, str]
    unknown: NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class PreparedDocument:
    """A document cut into blocks.

    Attributes:
        token_ids: shape (n_tokens,).
        bounds: shape (n_blocks, 2); block i is tokens ``bounds[i, 0]:bounds[i, 1]``; neighbours may overlap.
        starts, ends: shape (n_blocks,); the block's offsets in the original text, in Unicode code points.
        terms: shape (n_terms,), term keys block by block.
        term_bounds: shape (n_blocks + 1,), into `terms`.
        title_ids: shape (n_title_tokens,), capped at the pipeline's `title_tokens`.
        vectors: shape (n_blocks, dimensions), the blocks' vectors times QUANTUM; None without an encoder.
    """

    token_ids: NDArray[np.int32]
    bounds: NDArray[np.int32]
    starts: NDArray[np.int32]
    ends: NDArray[np.int32]
    terms: NDArray[np.int64]
    term_bounds: NDArray[np.int32]
    title_ids: NDArray[np.int32]
    vectors: NDArray[np.int8] | None = None

    def with_vectors(self, vectors: NDArray[np.int8]) -> "PreparedDocument":
        """The same document with these vectors; takes a third of the time of `dataclasses.replace`."""
        terms = self.terms, self.term_bounds
        return PreparedDocument(self.token_ids, self.bounds, self.starts, self.ends, *terms, self.title_ids, vectors)

    @property
    def n_blocks(self) -> int:
        """Number of blocks; 0 for a document without a token."""
        return len(self.bounds)

    @property
    def nbytes(self) -> int:
        """Size of its arrays in bytes."""
        arrays = (self.token_ids, self.bounds, self.starts, self.ends, self.terms, self.term_bounds, self.title_ids)
        return sum(array.nbytes for array in arrays) + (0 if self.vectors is None else self.vectors.nbytes)
