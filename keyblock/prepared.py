"""Prepared queries and documents, each alone, and what a pair of them shares: terms, near tokens, near vectors.

Each value of a pair is computed once, on first use, and then shared by selector, evidence and answer.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from keyblock.text.analyzer import DocumentFrequencies

QUANTUM = 127  # a block's vector of length 1 is stored as integers from -127 to 127
BLOCKS_AT_ONCE = 64  # blocks whose tokens are compared together: a book needs no more memory than a page
FRACTION = 2.0**30  # the query's vector is rounded to multiples of 1 / FRACTION
PRODUCT = FRACTION * QUANTUM  # the product of two equal vectors of length 1, in integers
NO_VECTORS = "vectors are compared that were not made: the pipeline that prepares needs an encoder"


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
        vectors: shape (n_blocks, dimensions), the blocks' vectors times QUANTUM; None without an encoder. Those of an understood
            document are longer, see `keyblock.meaning`.
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


class WeighedQuery:
    """A query with the frequencies of its terms: the same for every document that it meets.

    Args:
        query: the query.
        frequencies: the document frequencies.

    Attributes:
        query: as given.
        n_documents: number of documents in which the frequencies were counted.
        in_documents: shape (n_query_terms,), in how many of them each term occurs.
        idf: shape (n_query_terms,), see `idf_of`.
    """

    def __init__(self, query: PreparedQuery, frequencies: DocumentFrequencies) -> None:
        self.query, self.n_documents = query, frequencies.n_documents
        self.in_documents = frequencies.of(query.terms)
        self.idf = _idf(self.in_documents, self.n_documents)


class QueryDocument:
    """One query and one document. Do not write to its arrays.

    Args:
        weighed: the query.
        document: the document.

    Attributes:
        weighed, query, document: as given.
    """

    def __init__(self, weighed: WeighedQuery, document: PreparedDocument) -> None:
        self.weighed, self.query, self.document = weighed, weighed.query, document

    @property
    def idf(self) -> NDArray[np.float64]:
        """See WeighedQuery."""
        return self.weighed.idf

    @cached_property
    def counts(self) -> NDArray[np.float64]:
        """See `term_counts`."""
        return term_counts(self.query, self.document)

    @cached_property
    def held(self) -> NDArray[np.bool_]:
        """Whether each block has each term, shape (n_query_terms, n_blocks)."""
        return self.counts > 0

    @property
    def found(self) -> NDArray[np.bool_]:
        """Whether any block has each term, shape (n_query_terms,)."""
        return np.asarray(self.held.any(axis=1))

    @cached_property
    def near(self) -> NDArray[np.float64]:
        """For each block the sum over the query's tokens of the similarity of its nearest token, shape (n_blocks,), 0 to 1.

        Raises ValueError if the query was prepared without similarities.
        """
        similar, document = similar_tokens(self.query), self.document
        if not document.n_blocks:
            return np.zeros(0)
        best = []
        for first in range(0, document.n_blocks, BLOCKS_AT_ONCE):
            part = document.bounds[first : first + BLOCKS_AT_ONCE]
            start, end = int(part[0, 0]), int(part[:, 1].max())
            near = similar.of(document.token_ids[start:end])
            near = np.append(near, near[:1], axis=0)  # one more row, so that a block may end with the text
            best.append(np.maximum.reduceat(near, (part - start).ravel(), axis=0)[::2])  # every second range lies between blocks
        by_token = np.ascontiguousarray(np.concatenate(best).T)  # so that each block's sum adds the tokens in their order
        return np.asarray(by_token.sum(axis=0), dtype=np.float64)

    @cached_property
    def cosines(self) -> NDArray[np.float64]:
        """See `similarities`. Raises ValueError if query or document were prepared without vectors."""
        return similarities(self.query, self.document)


def term_counts(query: PreparedQuery, document: PreparedDocument) -> NDArray[np.float64]:
    """How often each distinct query term occurs in each block, shape (n_query_terms, n_blocks)."""
    shape = len(query.terms), document.n_blocks
    if 0 in shape:
        return np.zeros(shape)
    order = np.argsort(query.terms)
    known = query.terms[order]
    rows = np.searchsorted(known, document.terms)
    rows[rows == len(known)] = 0
    hits = np.flatnonzero(known[rows] == document.terms)
    blocks = np.searchsorted(document.term_bounds, hits, side="right") - 1
    cells = order[rows[hits]] * document.n_blocks + blocks
    return np.bincount(cells, minlength=shape[0] * shape[1]).reshape(shape).astype(np.float64)


def idf_of(terms: NDArray[np.int64], frequencies: DocumentFrequencies) -> NDArray[np.float64]:
    """BM25's inverse document frequency of each term key, shape (n_terms,); never below 0."""
    return _idf(frequencies.of(terms), frequencies.n_documents)


def _idf(in_documents: NDArray[np.float64], n_documents: int) -> NDArray[np.float64]:
    return np.maximum(np.log((n_documents + 1) / (in_documents + 0.5)), 0.0)


def weighted_sum(weights: NDArray[np.float64], values: NDArray[Any]) -> NDArray[np.float64]:
    """``weights @ values`` of shapes (n,) and (n, m); equal columns get equal sums, which BLAS does not guarantee."""
    return np.asarray((weights[:, None] * values).sum(axis=0))


def similar_tokens(query: PreparedQuery) -> Similar:
    """The query's `similar`. Raises ValueError if it was prepared without."""
    if query.similar is None:
        raise ValueError("tokens are compared whose similarities were not made: the pipeline that prepares needs the same selector")
    return query.similar


def similarities(query: PreparedQuery, document: PreparedDocument) -> NDArray[np.float64]:
    """The cosine of the query and each block, shape (n_blocks,); equal blocks have equal cosines.

    Raises ValueError if they were prepared without vectors.
    """
    if document.vectors is None:
        raise ValueError(NO_VECTORS)
    return np.asarray(document.vectors.astype(np.float64) @ whole_numbers(query) / PRODUCT)


def whole_numbers(query: PreparedQuery) -> NDArray[np.float64]:
    """The query's vector times FRACTION, in integers, shape (dimensions,): their sums are exact in whatever order BLAS adds.

    Raises ValueError if the query was prepared without a vector.
    """
    if query.vector is None:
        raise ValueError(NO_VECTORS)
    return np.rint(query.vector.astype(np.float64) * FRACTION)
