"""Selectors that the papers compare with: random blocks (KeyB), and the sentences that a ranker of single sentences reads.

The latter are those of Santos, Sentence-level representations for document ranking, section 3.1: FIRST n is the selector ``first``,
and TERMF n ``termf``, with ``aggregator.passages`` n; FIRST+TERMF is ``first_termf``, with the sum of both numbers. They work on
the blocks of any segmenter; ``single_sentences`` makes the paper's.
"""

from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from keyblock.prepared import QueryDocument
from keyblock.selectors import SELECTORS, Need, Selector, differ, drawn


@SELECTORS.register("random")
class Random(Selector):
    """Blocks at random (KeyB's Random Select); the same draw for the same query and document."""

    seed: int = Field(0, ge=0, description="seed of the draw")

    def of(self, pair: QueryDocument) -> NDArray[np.float64]:
        """See `drawn`."""
        return drawn(pair, self.seed)


@SELECTORS.register("termf")
class TermF(Selector):
    """TERMF: the raw count of the query's terms in the block. The analyzer drops stop words and maps words to terms."""

    needs: ClassVar[frozenset[Need]] = frozenset({Need.TERMS})

    def of(self, pair: QueryDocument) -> NDArray[np.float64]:
        """How many words of each block are words of the query (equation 1, over its distinct terms), shape (n_blocks,)."""
        return np.asarray(pair.counts.sum(axis=0))


@SELECTORS.register("first_termf")
class FirstTermF(Selector):
    """FIRST+TERMF: the first blocks, then the other blocks that hold most of the query's terms."""

    needs: ClassVar[frozenset[Need]] = frozenset({Need.TERMS})
    first: int = Field(10, ge=1, description="blocks of the document's beginning, whatever they say")

    @property
    def lexical(self) -> bool:
        """See Selector: False, since the first blocks' scores come from their position."""
        return False

    def tells_apart(self, scores: NDArray[np.float64], lexical: NDArray[np.float64], pair: QueryDocument) -> bool:
        """See Selector: whether the scores of the blocks after the first ones differ."""
        return differ(scores[self.first :])

    def of(self, pair: QueryDocument) -> NDArray[np.float64]:
        """Query-term counts of shape (n_blocks,); the first blocks get descending scores above all others."""
        counts = pair.counts.sum(axis=0)
        head = counts[: self.first]
        head[:] = counts.max(initial=0.0) + np.arange(len(head), 0, -1)
        return np.asarray(counts)
