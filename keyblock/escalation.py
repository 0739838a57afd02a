"""Escalation by doubt: if a document's terms hardly tell which blocks matter, the model scores single blocks.

A cheap selector sees words. If the blocks that it takes lack the query's rare words, other words may say the same elsewhere in the
document. The model then scores the cheap selector's best blocks and others spread over the document's length, within a limit of
tokens for each request.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field


class Escalation(BaseModel):
    """When the model chooses blocks, and how many tokens that may take."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    below: float = Field(0.5, ge=0, le=1, description="certainty (see `certainty`) below which the model chooses; 0 for never")
    blocks: int = Field(
        3,
        ge=1,
        le=64,
        description="the selector's best blocks that the model scores; it also scores others while tokens last",
    )
    tokens: int = Field(16384, ge=0, description="the most tokens of each request for this, query and specials included; 0: none")
    budget: int | None = Field(
        None, ge=16, description="tokens of the sequence in which such a document is read; none: the same as for other documents"
    )


class Escalated(NamedTuple):
    """The outcome of escalation for a request.

    Attributes:
        documents: number of documents whose blocks the model scored.
        tokens: tokens that this took.
        left: number of doubtful documents that were not escalated, for lack of tokens or time.
    """

    documents: int = 0
    tokens: int = 0
    left: int = 0


def certainty(found: NDArray[np.bool_], idf: NDArray[np.float64], taken: NDArray[np.intp]) -> float:
    """The share of the query's idf mass in the best of the blocks that a cheap selector takes.

    Args:
        found: shape (n_query_terms, n_blocks), whether the block has the term.
        idf: shape (n_query_terms,).
        taken: shape (n_taken,), block numbers.

    Returns:
        0 to 1; 0 if nothing was taken, or the query has no term.
    """
    mass = float(idf.sum())
    return float((idf @ found[:, taken]).max()) / mass if mass and len(taken) else 0.0


def shares(costs: Sequence[int], sizes: Sequence[int], least: int, tokens: int, beside: int = 0) -> list[int]:
    """How many blocks of each doubtful document the model scores.

    Documents in the order given get their `least` blocks as long as the tokens last. The remaining tokens are divided equally among
    these documents; a document that does not need its part leaves it to the rest.

    Args:
        costs: for each document the most tokens of one of its blocks.
        sizes: number of blocks of each document.
        least: blocks that each document gets, or all if it has fewer.
        tokens: for all documents together.
        beside: tokens that each document costs beside its blocks.

    Returns:
        Block counts; 0 for documents for which the tokens do not suffice. Together they cost at most `tokens`.
    """
    granted = [0] * len(costs)
    left = tokens
    for number, (cost, size) in enumerate(zip(costs, sizes, strict=True)):
        due = beside + cost * min(least, size)
        if due > left:
            break
        granted[number] = min(least, size)
        left -= due
    # the cheapest to satisfy first: each takes at most an equal part, so that the rest share what it does not need
    hungry = sorted((n for n, count in enumerate(granted) if count), key=lambda n: costs[n] * (sizes[n] - granted[n]))
    for place, number in enumerate(hungry):
        more = min(left // (len(hungry) - place) // costs[number], sizes[number] - granted[number])
        granted[number] += more
        left -= more * costs[number]
    return granted


def spread(order: NDArray[np.intp], least: int, count: int) -> NDArray[np.intp]:
    """Ascending numbers of the blocks that the model scores: the `least` best, and others evenly over the document.

    Args:
        order: shape (n_blocks,), all block numbers, the cheap selector's best first.
        least: how many of the best blocks.
        count: how many blocks in all; at least `least`, if there are so many.
    """
    best, rest = order[:least], np.sort(order[least:])
    more = min(count - len(best), len(rest))
    places = (np.arange(max(more, 0)) + 0.5) * len(rest) / max(more, 1)
    return np.sort(np.concatenate([best, rest[places.astype(np.intp)]]))
