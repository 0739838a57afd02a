"""The places of blocks and gold passages in their documents.

Blocks: KeyB, sections 3.2 and 6.5, Figures 11 and 12. Gold passages by chunk of 477 tokens: Table 1 of "Understanding
Performance of Long-Document Ranking Models through Comprehensive Evaluation and Leaderboarding".
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.selectors import rank_blocks
from keyblock.text.tokenizer import Tokenizer
from training.data.collection import Collection

POSITIONS, RANKS = 10, 8  # the paper's: tenths of a document, and its eight best blocks
CHUNK, CHUNKS = 477, 6  # Table 1's: tokens of a chunk, and how many chunks are counted separately


def position(number: int, blocks: int) -> int:
    """The tenth of a document of `blocks` blocks that one belongs to, 1 to 10; the first block has the number 1."""
    return math.ceil(POSITIONS * number / blocks)


def by_position(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """The mean score of the blocks at each position, shape (10,), from the scores of at least ten blocks in order."""
    places = [position(number, len(scores)) - 1 for number in range(1, len(scores) + 1)]
    return np.asarray(np.bincount(places, scores, POSITIONS) / np.bincount(places, minlength=POSITIONS))


def best_positions(scores: NDArray[np.float64]) -> NDArray[np.intp]:
    """How many of the eight best blocks stand at each position, shape (10,); equal ones in the document's order."""
    places = [position(block + 1, len(scores)) - 1 for block in rank_blocks(scores)[:RANKS].tolist()]
    return np.bincount(places, minlength=POSITIONS)


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
