"""Comparison of one request's documents by the words that they share with the query, for languages without a frequency table.

The request itself shows which terms are rare: a term counts more if fewer blocks of all its documents have it. The blocks of one
document are not enough for that: many of them have the words of its topic.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.fusion import FEATURES, evidence_of
from keyblock.prepared import PreparedDocument, QueryDocument, weighted_sum
from keyblock.selectors import Bm25
from keyblock.text.analyzer import DocumentFrequencies

PLACES = 2  # added to a place before taking its reciprocal (60 in Cormack et al. 2009): on dev no language loses by it
KEPT = 32  # the most blocks of a document that are kept, those that share most: a book costs no more than an article
LOOKED_UP = 64  # terms of a document, evenly spread, that are looked up to decide whether the table knows its language
FEWEST = 16  # a document with fewer terms counts as known
KNOWN = 0.72  # share of terms that the table has: on dev above it in every document in English, below it in every other language
TERMS_BY = Bm25()


class Shared(NamedTuple):
    """The terms of a query in a document.

    Attributes:
        counts: shape (n_query_terms, n_kept), the weight of each term in each kept block, 0 to 1.
        block_counts: shape (n_query_terms,), how many blocks have the term.
        n_blocks: number of blocks of the document.
        foreign: whether the query or the document is clearly in a script that the model has not learned.
        unknown: for a document that is not foreign, whether the frequency table does not know its language.
    """

    counts: NDArray[np.float32]
    block_counts: NDArray[np.intp]
    n_blocks: int
    foreign: bool = False
    unknown: bool = False


def shared_terms(pair: QueryDocument, *, foreign: bool = False, unknown: bool = False) -> Shared:
    """The query's terms in one document."""
    saturated = TERMS_BY.saturated(pair)
    kept = np.sort(np.argsort(-saturated.sum(axis=0), kind="stable")[:KEPT])
    return Shared(saturated[:, kept].astype(np.float32), pair.held.sum(axis=1), pair.document.n_blocks, foreign, unknown)


def knows_language(frequencies: DocumentFrequencies, document: PreparedDocument) -> bool:
    """Whether the table has most of the document's terms, as it has for texts in its language; True for fewer than FEWEST terms."""
    n = len(document.terms)
    if n < FEWEST:
        return True
    sample = document.terms[_spread(n)]
    return bool(np.count_nonzero(frequencies.of(sample)) / len(sample) >= KNOWN)


@lru_cache(maxsize=4096)
def _spread(n: int) -> NDArray[np.intp]:
    """Places of LOOKED_UP terms, evenly spread among n."""
    return np.linspace(0, n - 1, min(n, LOOKED_UP)).astype(np.intp)


def pooled_evidence(documents: Sequence[Shared]) -> NDArray[np.float64]:
    """The evidence of each document, shape (n_documents, 5), as from `evidence_of` without comparing tokens.

    Args:
        documents: from `shared_terms`, for one query.
    """
    rarity = _rarity(documents)
    found = [evidence_of(weighted_sum(rarity, one.counts), one.block_counts > 0, rarity) for one in documents]
    return np.asarray(found).reshape(len(documents), len(FEATURES) - 1)


def rare_here(documents: Sequence[Shared | None]) -> NDArray[np.float64]:
    """The best block's score of each document, shape (n_documents,), with weights by rarity among the request's own blocks.

    A document without a block, or without kept terms, has 0.

    Args:
        documents: from `shared_terms`, for one query; None if the terms were not kept.
    """
    known = [one for one in documents if one is not None]
    rarity = _rarity(known) if known else np.zeros(0)
    return np.asarray([0.0 if one is None else weighted_sum(rarity, one.counts).max(initial=0.0) for one in documents])


def _rarity(documents: Sequence[Shared]) -> NDArray[np.float64]:
    """The weight of each term, shape (n_query_terms,): higher if fewer blocks have it."""
    block_counts = np.sum([shared.block_counts for shared in documents], axis=0)
    return np.asarray(np.log((sum(shared.n_blocks for shared in documents) + 1) / (block_counts + 0.5)))


def fused_with_order(worth: NDArray[np.float64]) -> NDArray[np.float64]:
    """The worth of documents fused with the order given, both with equal weight: the sum of the reciprocals of both places.

    Args:
        worth: shape (n_documents,), in the order given, which also breaks ties. A document of worth 0 gets the reciprocal of its
            place in the order given alone.

    Returns:
        Shape (n_documents,).
    """
    given = np.arange(len(worth))
    place = np.empty(len(worth), dtype=np.intp)
    place[np.argsort(-worth, kind="stable")] = given
    return np.asarray(1 / (PLACES + 1 + given) + (worth > 0) / (PLACES + 1 + place))
