"""Splitting a document into blocks of at most 63 tokens at the cheapest places (KeyB section 3.1, after CogLTX).

Cut candidates are the ends of sentences and clauses. The split minimises ``sum(cost of each cut) + 4 per block``; a cut after
``. ? !`` costs 1, after ``,`` 2, a forced one 8 (a stretch of more than 63 tokens without punctuation is cut every 63), and the
document's end 0. On a tie the nearest cut before wins.
"""

from collections import deque

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from keyblock.registry import Component, Registry
from keyblock.tokenization import Tokenizer

BLOCK_COST, FORCED_COST = 4, 8
CUT_COSTS = {".": 1, "?": 1, "!": 1, ",": 2}


def cut_costs(tokenizer: Tokenizer) -> NDArray[np.int64]:
    """The cost of a cut after each token, shape (vocabulary,); 0 where no cut is offered."""
    costs = np.zeros(tokenizer.vocabulary_size, dtype=np.int64)
    for surface, cost in CUT_COSTS.items():
        costs[tokenizer.token_ids(surface)] = cost
    return costs


def cut_candidates(costs: NDArray[np.int64], longest: int) -> tuple[list[int], list[int]]:
    """Places where the text may be cut, as token counts from its start, and what a cut there costs.

    Args:
        costs: shape (n_tokens,), the cost of a cut after each token, 0 for none.
        longest: the most tokens between two neighbouring places; wider gaps get forced cuts.

    Returns:
        Ascending places from 0 to n_tokens, and their costs.
    """
    n_tokens = len(costs)
    offered = np.flatnonzero(costs)
    places, prices = [0], [0]
    for place, price in zip((offered + 1).tolist(), costs[offered].tolist(), strict=True):
        _force(places, prices, place, longest)
        places.append(place)
        prices.append(price)
    _force(places, prices, n_tokens, longest)
    if places[-1] < n_tokens:
        places.append(n_tokens)
        prices.append(0)
    return places, prices


def _force(places: list[int], prices: list[int], until: int, longest: int) -> None:
    while until - places[-1] > longest:
        places.append(places[-1] + longest)
        prices.append(FORCED_COST)


def split(costs: NDArray[np.int64], longest: int = 63) -> NDArray[np.int32]:
    """The cheapest split into blocks of at most `longest` tokens.

    Args:
        costs: shape (n_tokens,), the cost of a cut after each token, 0 for none.
        longest: tokens a block may have.

    Returns:
        Bounds of shape (n_blocks + 1,): block i is tokens ``bounds[i]:bounds[i + 1]``; ``[0]`` for an empty document.
    """
    places, prices = cut_candidates(costs, longest)
    best, before = [0] * len(places), [0] * len(places)
    window = deque([0])  # places within reach that no nearer place undercuts: cheapest first, so a page of "!" stays linear
    for i in range(1, len(places)):
        while places[window[0]] < places[i] - longest:
            window.popleft()
        before[i] = window[0]
        best[i] = best[window[0]] + prices[i] + BLOCK_COST
        while window and best[window[-1]] >= best[i]:
            window.pop()
        window.append(i)
    bounds, i = [], len(places) - 1
    while i > 0:
        bounds.append(places[i])
        i = before[i]
    return np.asarray([0, *reversed(bounds)], dtype=np.int32)


class Segmenter(Component):
    """Cuts a tokenized document into blocks."""

    def bounds(self, costs: NDArray[np.int64]) -> NDArray[np.int32]:
        """Block bounds of shape (n_blocks + 1,) from the cut cost after each token, shape (n_tokens,)."""
        raise TypeError(f"{type(self).__name__} does not say how it cuts")


SEGMENTERS: Registry[Segmenter] = Registry("segmenter")


@SEGMENTERS.register("cogltx")
class CogLtxSegmenter(Segmenter):
    """Blocks that end where sentences do, by dynamic programming."""

    block_tokens: int = Field(63, ge=1, le=512, description="tokens a block has at most")

    def bounds(self, costs: NDArray[np.int64]) -> NDArray[np.int32]:
        """See `split`."""
        return split(costs, self.block_tokens)
