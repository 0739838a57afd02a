"""A query meets a document: which terms they share, and how near their tokens and vectors are.

Each value is computed once, on first use, and then shared by selector, evidence and answer.
"""

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyblock.prepared import QUANTUM, PreparedDocument, PreparedQuery, Similar
from keyblock.text.analyzer import DocumentFrequencies

BLOCKS_AT_ONCE = 64  # blocks whose tokens are compared together: a book needs no more memory than a page
FRACTION = 2.0**30  # the query's vector is rounded to multiples of 1 / FRACTION
PRODUCT = FRACTION * QUANTUM  # the product of two equal vectors of length 1, in integers
NO_VECTORS = "vectors are compared that were not made: the pipeline that prepares needs an encoder"


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
        """See `nearest_tokens`. Raises ValueError if the query was prepared without similarities."""
        return nearest_tokens(self.query, self.document)

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


def nearest_tokens(query: PreparedQuery, document: PreparedDocument) -> NDArray[np.float64]:
    """For each block the sum over the query's tokens of the similarity of the block's nearest token, shape (n_blocks,), 0 to 1.

    Raises ValueError if the query was prepared without similarities.
    """
    similar = similar_tokens(query)
    if not document.n_blocks:
        return np.zeros(0)
    best = []
    for first in range(0, document.n_blocks, BLOCKS_AT_ONCE):
        part = document.bounds[first : first + BLOCKS_AT_ONCE]
        start, end = int(part[0, 0]), int(part[:, 1].max())
        near = similar.of(document.token_ids[start:end])
        near = np.append(near, near[:1], axis=0)  # one more row, so that a block may end with the text
        best.append(np.maximum.reduceat(near, (part - start).ravel(), axis=0)[::2])  # every second range lies between two blocks
    by_token = np.ascontiguousarray(np.concatenate(best).T)  # so that each block's sum adds the tokens in their order
    return np.asarray(by_token.sum(axis=0), dtype=np.float64)


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
