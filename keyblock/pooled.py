"""Documents of one request beside each other by the words that they share with the query, where no table knows the words.

What is rare is told by the request itself: a term counts the more, the fewer of all its documents' blocks have it. One document's
blocks alone do not tell: what it is about stands in many of them.
"""

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.evidence import FEATURES, evidence_of
from keyblock.meeting import Meeting, weighted_sum
from keyblock.prepared import PreparedDocument
from keyblock.selectors import Bm25
from keyblock.text.frequencies import DocumentFrequencies

PLACES = 2  # added to a place before its reciprocal is taken (Cormack et al. 2009 have 60): on dev no language loses by it
KEPT = 32  # blocks of a document that are kept, those that share most: a book costs no more than an article
LOOKED_UP = 64  # terms of a document, evenly spread, that say whether a table knows its language
FEWEST = 16  # terms: of fewer nothing is said
KNOWN = 0.72  # share of terms that the table has: on dev above it in every document in English, below it in every other language
TERMS_BY = Bm25()


class Shared(NamedTuple):
    """The terms of a query in a document.

    Attributes:
        counts: shape (n_query_terms, n_kept), what each term counts for in each block that is kept, 0 to 1.
        having: shape (n_query_terms,), how many blocks have it.
        n_blocks: of the document.
        foreign: whether the query or the document is clearly in a script that the model has not learned.
        unknown: else, whether the table of frequencies does not know the document's language.
    """

    counts: NDArray[np.float32]
    having: NDArray[np.intp]
    n_blocks: int
    foreign: bool = False
    unknown: bool = False


def shared_terms(meeting: Meeting, *, foreign: bool = False, unknown: bool = False) -> Shared:
    """Of one document."""
    saturated = TERMS_BY.saturated(meeting)
    kept = np.sort(np.argsort(-saturated.sum(axis=0), kind="stable")[:KEPT])
    return Shared(saturated[:, kept].astype(np.float32), meeting.held.sum(axis=1), meeting.document.n_blocks, foreign, unknown)


def knows(frequencies: DocumentFrequencies, document: PreparedDocument) -> bool:
    """Whether the table has most of the document's terms, as it has of texts in its language; True where there are few to ask."""
    n = len(document.terms)
    if n < FEWEST:
        return True
    asked = document.terms[_spread(n)]
    return bool(np.count_nonzero(frequencies.of(asked)) / len(asked) >= KNOWN)


@lru_cache(maxsize=4096)
def _spread(n: int) -> NDArray[np.intp]:
    """Places of LOOKED_UP terms among so many."""
    return np.linspace(0, n - 1, min(n, LOOKED_UP)).astype(np.intp)


def pooled_evidence(documents: Sequence[Shared]) -> NDArray[np.float64]:
    """The evidence of each document, shape (n_documents, 4), as `evidence_of` has it, no token compared.

    Args:
        documents: as `shared_terms` has them, of one query.
    """
    rarity = _rarity(documents)
    found = [evidence_of(weighted_sum(rarity, one.counts), one.having > 0, rarity) for one in documents]
    return np.asarray(found).reshape(len(documents), len(FEATURES) - 1)


def rare_here(documents: Sequence[Shared | None]) -> NDArray[np.float64]:
    """The best block's score of each document, shape (n_documents,), by what is rare among the request's own blocks.

    A document without a block, of which nothing was kept, has 0.

    Args:
        documents: as `shared_terms` has them, of one query.
    """
    known = [one for one in documents if one is not None]
    rarity = _rarity(known) if known else np.zeros(0)
    return np.asarray([0.0 if one is None else weighted_sum(rarity, one.counts).max(initial=0.0) for one in documents])


def _rarity(documents: Sequence[Shared]) -> NDArray[np.float64]:
    """What each term counts for, shape (n_query_terms,): the more, the fewer blocks have it."""
    having = np.sum([shared.having for shared in documents], axis=0)
    return np.asarray(np.log((sum(shared.n_blocks for shared in documents) + 1) / (having + 0.5)))


def beside_the_order(worth: NDArray[np.float64]) -> NDArray[np.float64]:
    """The worth of documents whose order given counts as much as this: reciprocals of both places, shape (n_documents,).

    Args:
        worth: shape (n_documents,), in the order given; of equals the first is placed before. One of 0 has its place there alone.
    """
    given = np.arange(len(worth))
    place = np.empty(len(worth), dtype=np.intp)
    place[np.argsort(-worth, kind="stable")] = given
    return np.asarray(1 / (PLACES + 1 + given) + (worth > 0) / (PLACES + 1 + place))
