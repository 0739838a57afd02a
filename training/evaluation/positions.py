"""Where selected blocks stand in their documents (KeyB, sections 3.2 and 6.5, Figures 11 and 12)."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from training.evaluation.evaluate import Blocks
from training.evaluation.measures import Grades

POSITIONS, RANKS = 10, 8  # the paper's: tenths of a document, and its eight best blocks
RARE = 0.05  # of the documents: a rank that so few reach says nothing of where blocks lie
SHORTEST = 4000  # characters: about the fifteen blocks below which the paper leaves a document out


class BlockPlace(NamedTuple):
    """A selected block.

    Attributes:
        rank: among the selected blocks of its document, 1 for the best.
        position: the tenth of the document that it ends in, 1 to 10.
        start: offset of its first character.
        relevant: whether its document is.
    """

    rank: int
    position: int
    start: int
    relevant: bool


def position(end: int, length: int) -> int:
    """Which of ten equal parts of a document a block belongs to, from 1.

    KeyB's pos(i) = ceil(10 i / b) for block i of b, with characters for blocks: ends for i, the document's length for b.
    """
    return min(POSITIONS, max(1, math.ceil(POSITIONS * end / length)))


def block_places(blocks: Blocks, lengths: Mapping[str, int], grades: Grades, shortest: int = SHORTEST) -> list[BlockPlace]:
    """The place of every selected block of the documents with at least `shortest` characters.

    Args:
        blocks: offsets of the selected blocks, best first, by document, by query.
        lengths: characters of each of these documents.
        grades: judgements; a document without one is not relevant.
    """
    return [
        BlockPlace(rank, position(end, lengths[document]), start, grades.get(query, {}).get(document, 0) > 0)
        for query, documents in blocks.items()
        for document, offsets in documents.items()
        if lengths[document] >= shortest
        for rank, (start, end) in enumerate(offsets, 1)
    ]


def told_ranks(places: Iterable[BlockPlace]) -> int:
    """How many ranks are worth a picture: RANKS at most, the first and those that more than a RARE share of documents reach."""
    counts = Counter(place.rank for place in places)
    return max((rank for rank in range(1, RANKS + 1) if counts[rank] > RARE * counts[1]), default=1)


def position_shares(places: Iterable[BlockPlace], ranks: int = RANKS, positions: int = POSITIONS) -> NDArray[np.float64]:
    """Shape (ranks, positions): the share of a rank's blocks at each position; a row sums to 1, or to 0 without a block."""
    counts = np.zeros((ranks, positions))
    for place in places:
        if place.rank <= ranks:
            counts[place.rank - 1, place.position - 1] += 1
    return counts / np.maximum(1, counts.sum(axis=1, keepdims=True))


def start_shares(places: Sequence[BlockPlace], edges: NDArray[np.float64]) -> NDArray[np.float64]:
    """Shape (n_edges - 1,): the share of the blocks that start between two edges, in characters; 0 without a block."""
    counts, _ = np.histogram([place.start for place in places], edges)
    return counts / max(1, len(places))
