"""How many of a document's best blocks the model reads: few if few decide, more if the evidence is spread out.

After the adaptive evidence budgeting of EviRerank (Li et al., arXiv 2411.06254): blocks are taken under a hard cap of tokens, until
the evidence gets thin. The rules were built from the abstract, so their formulas are not the paper's.

A rule sees one query and one document, as a score does, and never the other candidates. It decides how many blocks are enough; the
budget is the cap. If no block of a document holds much of the query (`promise`), the model reads only the floor: that moves tokens
from documents that will not rank high anyway to those that may.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from keyblock.escalation import certainty
from keyblock.registry import Component, Registry


class Ranked(NamedTuple):
    """A document's blocks as a rule sees them, best first by the selector.

    Attributes:
        lengths: shape (n_blocks,), tokens.
        lexical: shape (n_blocks,), the scores of the pipeline's evidence, none below 0.
        counts: shape (n_query_terms, n_blocks), how often each block has each term.
        idf: shape (n_query_terms,), none below 0.
    """

    lengths: NDArray[np.int32]
    lexical: NDArray[np.float64]
    counts: NDArray[np.float64]
    idf: NDArray[np.float64]


class Adaptive(Component):
    """A rule of when to stop reading. It takes blocks from the front only, so none is read in place of a better one."""

    blocks: int = Field(1, ge=1, le=64, description="the floor: the best blocks that are always read")
    tokens: int = Field(0, ge=0, description="the floor in tokens: blocks are read until they have this many")
    promise: float = Field(
        0.0,
        ge=0,
        le=1,
        description="share of the query's idf mass that one block must hold; documents without such a block, and documents whose "
        "blocks differ only in position, are read no further than the floor",
    )

    def count(self, ranked: Ranked, *, evident: bool = True) -> int:
        """How many of the best blocks are read; 0 only if there is none.

        Args:
            ranked: the blocks.
            evident: whether evidence supports this order.
        """
        n_blocks = len(ranked.lengths)
        short = int(np.searchsorted(np.cumsum(ranked.lengths), self.tokens))  # blocks that together have fewer tokens
        floor = min(max(self.blocks, short + 1 if self.tokens else 0), n_blocks)
        if floor == n_blocks or not evident or certainty(ranked.counts > 0, ranked.idf, np.arange(n_blocks)) < self.promise:
            return floor
        return max(floor, self.needed(ranked))

    def needed(self, ranked: Ranked) -> int:
        """How many of the blocks the evidence calls for; there are at least two."""
        raise TypeError(f"{type(self).__name__} does not say when to stop")


ADAPTIVE: Registry[Adaptive] = Registry("adaptive rule")


@ADAPTIVE.register("relative")
class Relative(Adaptive):
    """Reading stops before the first block whose lexical score is less than a given part of the highest."""

    ratio: float = Field(0.5, ge=0, le=1, description="share of the highest score that a block needs; 0: only the budget stops")

    def needed(self, ranked: Ranked) -> int:
        """See Adaptive."""
        return run_length(ranked.lexical >= self.ratio * ranked.lexical.max())


@ADAPTIVE.register("share")
class Share(Adaptive):
    """Reading stops once the blocks have a given share of the document's summed lexical scores."""

    share: float = Field(0.5, ge=0, le=1, description="share of the sum over all blocks; 1: all blocks with a score are read")

    def needed(self, ranked: Ranked) -> int:
        """See Adaptive."""
        held = np.cumsum(ranked.lexical)
        return int(np.searchsorted(held, self.share * held[-1])) + 1


@ADAPTIVE.register("density")
class Density(Adaptive):
    """Reading stops before the first block that adds little of the query for its tokens, compared with the blocks before it.

    Blocks together hold ``sum of idf * tf / (saturation + tf)`` of the query, with tf over all of them. The rule compares the sum
    that a block adds, divided by its tokens, with the sum of the blocks before it, divided by theirs.
    """

    ratio: float = Field(0.3, ge=0, description="share of the density so far that a block must add; 0: only the budget stops")
    saturation: float = Field(0.9, ge=0, description="how slowly repeated terms stop counting; 0: only new terms count")

    def needed(self, ranked: Ranked) -> int:
        """See Adaptive."""
        together = np.cumsum(ranked.counts, axis=1)
        held = ranked.idf @ np.divide(together, self.saturation + together, out=np.zeros_like(together), where=together > 0)
        before = held[:-1] / np.cumsum(ranked.lengths)[:-1]
        return 1 + run_length(np.diff(held) / ranked.lengths[1:] >= self.ratio * before)


def run_length(holds: NDArray[np.bool_]) -> int:
    """How many values are True before the first that is False.

    >>> run_length(np.asarray([True, True, False, True]))
    2
    """
    return len(holds) if holds.all() else int(np.argmin(holds))
