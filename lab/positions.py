"""The places of selected blocks and gold passages in their documents.

Selected blocks: KeyB, sections 3.2 and 6.5, Figures 11 and 12. Gold passages by chunk of 477 tokens: Table 1 of "Understanding
Performance of Long-Document Ranking Models through Comprehensive Evaluation and Leaderboarding".
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.text.tokenizer import Tokenizer
from training.data.collection import Collection
from training.evaluate.evaluate import Blocks
from training.evaluate.measures import Grades

POSITIONS, RANKS = 10, 8  # the paper's: tenths of a document, and its eight best blocks
RARE = 0.05  # share of the documents: a rank that no more of them have is not drawn
CHUNK, CHUNKS = 477, 6  # Table 1's: tokens of a chunk, and how many chunks are counted separately
SHORTEST = 4000  # characters: about fifteen blocks; the paper leaves shorter documents out


class BlockPlace(NamedTuple):
    """A selected block.

    Attributes:
        rank: among the selected blocks of its document, 1 for the best.
        position: the tenth of the document that it ends in, 1 to 10.
        start: offset of its first character.
        relevant: whether its document is relevant.
    """

    rank: int
    position: int
    start: int
    relevant: bool


def position(end: int, length: int) -> int:
    """The tenth of a document that a block belongs to, 1 to 10.

    KeyB's pos(i) = ceil(10 i / b) for block i of b, in characters instead of blocks: the block's end for i, the document's length
    for b.
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


def drawn_ranks(places: Iterable[BlockPlace]) -> int:
    """How many ranks to draw: the last one, up to RANKS, that more than the share RARE of the documents have; at least 1."""
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


class GoldPlace(NamedTuple):
    """A gold passage, in tokens of its document's text; the title does not count.

    Attributes:
        query: the query's id.
        doc_id: the document's id.
        start: tokens in front of it.
        end: tokens up to its end.
        length: tokens of the document.
    """

    query: str
    doc_id: str
    start: int
    end: int
    length: int

    @property
    def last(self) -> int:
        """The place of its last token, from 0."""
        return max(self.start, self.end - 1)


def gold_places(collection: Collection, queries: Iterable[str], tokenizer: Tokenizer) -> list[GoldPlace]:
    """The places of the queries' gold passages, in the order of the queries; a query without a span has none.

    Raises CollectionError for a span of a document that the corpus lacks.
    """
    spans = [(query, span) for query in queries for span in collection.spans.get(query, ())]
    borders: dict[str, tuple[NDArray[np.int64], NDArray[np.int64]]] = {}
    for doc_id in dict.fromkeys(span.doc_id for _, span in spans):
        (encoding,) = tokenizer.encode([collection.document(doc_id).text])
        starts, ends = np.asarray(encoding.offsets, dtype=np.int64).reshape(-1, 2).T
        borders[doc_id] = (starts, ends)
    found = []
    for query, span in spans:
        starts, ends = borders[span.doc_id]
        first, behind = np.searchsorted(ends, span.start, side="right"), np.searchsorted(starts, span.end)
        found.append(GoldPlace(query, span.doc_id, int(first), int(behind), len(starts)))
    return found


def chunk(token: int, size: int = CHUNK) -> int:
    """The chunk that a token stands in, from 1; `token` from 0."""
    return token // size + 1


def chunk_shares(tokens: Sequence[int], size: int = CHUNK, chunks: int = CHUNKS) -> NDArray[np.float64]:
    """Shape (chunks + 1,): the share of the tokens in each chunk, the last for all further chunks; 0 without a token."""
    counts = Counter(min(chunk(token, size), chunks + 1) for token in tokens)
    return np.asarray([counts[number] for number in range(1, chunks + 2)]) / max(1, len(tokens))


def by_chunk(
    values: Mapping[str, float], places: Iterable[GoldPlace], size: int = CHUNK, chunks: int = CHUNKS
) -> list[list[float]]:
    """The values of the queries whose gold passage starts in each chunk; the last list is for all further chunks.

    A query of several passages counts by the first one. A query without a passage is left out.
    """
    first: dict[str, int] = {}
    for place in places:
        first[place.query] = min(place.start, first.get(place.query, place.start))
    groups: list[list[float]] = [[] for _ in range(chunks + 1)]
    for query, start in first.items():
        if query in values:
            groups[min(chunk(start, size), chunks + 1) - 1].append(values[query])
    return groups
