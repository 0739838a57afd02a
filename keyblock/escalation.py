"""Escalation by doubt: where a document's terms say little of which blocks matter, the model is asked about single blocks.

A cheap selector sees words. Where the query's rare words are not in the blocks that it takes, other words may say the same
elsewhere. The model is then asked about the cheap selector's best blocks and about others spread over the document's length, within
a bound of tokens for each request.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field


class Escalation(BaseModel):
    """When the model is asked to choose blocks, and how many tokens that may take."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    below: float = Field(0.5, ge=0, le=1, description="certainty (see `certainty`) below which the model is asked; 0 for never")
    blocks: int = Field(
        3,
        ge=1,
        le=64,
        description="best blocks by the selector that the model is asked about; others too while tokens last",
    )
    tokens: int = Field(16384, ge=0, description="that this may take for each request, query and specials included; 0 for none")
    budget: int | None = Field(
        None, ge=16, description="tokens of the sequence in which such a document is then read; none: as many as any other's"
    )


class Escalated(NamedTuple):
    """What escalation came to for a request.

    Attributes:
        documents: whose blocks the model was asked about.
        tokens: that this took.
        left: doubtful documents that it was not asked about, for want of tokens or of time.
    """

    documents: int = 0
    tokens: int = 0
    left: int = 0


def certainty(found: NDArray[np.bool_], idf: NDArray[np.float64], taken: NDArray[np.intp]) -> float:
    """How much of the query's idf mass stands in the best of the blocks that a cheap selector takes.

    Args:
        found: shape (n_query_terms, n_blocks), whether the block has the term.
        idf: shape (n_query_terms,).
        taken: shape (n_taken,), block numbers.

    Returns:
        0 to 1; 0 where nothing was taken, or the query has no term.
    """
    mass = float(idf.sum())
    return float((idf @ found[:, taken]).max()) / mass if mass and len(taken) else 0.0


def shares(costs: Sequence[int], sizes: Sequence[int], least: int, tokens: int, beside: int = 0) -> list[int]:
    """How many blocks of each doubtful document the model is asked about.

    Documents in the order given have their `least` blocks as long as the tokens last; what is left goes to these in equal parts,
    and what one does not need to the others.

    Args:
        costs: tokens that a block takes at most, of each document.
        sizes: blocks of each.
        least: blocks that a document has asked about; of a shorter one all.
        tokens: for all together.
        beside: tokens that each document costs beside its blocks.

    Returns:
        Block counts; 0 for documents that the tokens do not do for. Together they cost `tokens` at most.
    """
    granted = [0] * len(costs)
    left = tokens
    for number, (cost, size) in enumerate(zip(costs, sizes, strict=True)):
        due = beside + cost * min(least, size)
        if due > left:
            break
        granted[number] = min(least, size)
        left -= due
    # the cheapest to satisfy first: each takes what it needs of an equal part, so what it leaves is shared by the others
    hungry = sorted((n for n, count in enumerate(granted) if count), key=lambda n: costs[n] * (sizes[n] - granted[n]))
    for place, number in enumerate(hungry):
        more = min(left // (len(hungry) - place) // costs[number], sizes[number] - granted[number])
        granted[number] += more
        left -= more * costs[number]
    return granted


def spread(order: NDArray[np.intp], least: int, count: int) -> NDArray[np.intp]:
    """Block numbers, ascending, of the blocks that are asked about: the `least` best, then others evenly over the document.

    Args:
        order: shape (n_blocks,), all block numbers, the cheap selector's best first.
        least: how many of the best.
        count: how many in all, `least` or more where there are so many.
    """
    best, others = order[:least], np.sort(order[least:])
    more = min(count - len(best), len(others))
    places = (np.arange(max(more, 0)) + 0.5) * len(others) / max(more, 1)
    return np.sort(np.concatenate([best, others[places.astype(np.intp)]]))
