"""The result of a selection: the blocks of a document that the model reads for a query, with their scores."""

from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from keyblock.packing import Packed
from keyblock.pooled import Shared
from keyblock.prepared import PreparedDocument
from keyblock.selectors import SelectedBy, rank_blocks


class BlockScores(NamedTuple):
    """Scores of a document's blocks that need no model, each of shape (n_blocks,).

    Attributes:
        cheap: scores of the selector that needs no model.
        lexical: scores of the pipeline's evidence.
        near: how near the blocks' tokens are to the query's, see `nearest_tokens`; none: tokens are not compared.
    """

    cheap: NDArray[np.float64]
    lexical: NDArray[np.float64]
    near: NDArray[np.float64] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Shortlist:
    """The blocks that the cheap selector leaves to a learned one.

    Attributes:
        known: scores of every block that need no model.
        blocks: shape (n_shortlisted,), block numbers in document order.
        sequences: one for each of these blocks: the query with the block.
    """

    known: BlockScores
    blocks: NDArray[np.intp]
    sequences: list[Packed]

    @property
    def n_tokens(self) -> int:
        """Tokens of all sequences, query and specials included."""
        return sum(len(packed.ids) for packed in self.sequences)

    def scored(self, logits: NDArray[np.floating]) -> NDArray[np.float64]:
        """A score for every block, shape (n_blocks,): the model's logits, shape (n_shortlisted,), and -inf for all other blocks."""
        scores = np.full(len(self.known.cheap), -np.inf)
        scores[self.blocks] = logits
        return scores


class Chosen(NamedTuple):
    """The blocks that the model reads: see Selection.

    Attributes:
        sequences: the model's inputs.
        taken: shape (n_taken,), the chosen blocks, best first.
        reach: shape (n_taken, 2), the range of blocks that each of them stands for.
    """

    sequences: list[Packed]
    taken: NDArray[np.intp]
    reach: NDArray[np.intp]

    def is_all_of(self, document: PreparedDocument) -> bool:
        """Whether nothing had to be chosen: the model reads every block in full, or there is at most one block."""
        n_read = int((self.reach[:, 1] - self.reach[:, 0]).sum())
        return document.n_blocks < 2 or (n_read == document.n_blocks and not any(packed.cut for packed in self.sequences))


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """A document's blocks as chosen for a query.

    Attributes:
        sequences: the model's inputs: one of all chosen blocks if the aggregator is joint; else one for each, in document order,
            and none for a document without blocks.
        taken: shape (n_taken,), the chosen blocks, best first.
        scores: shape (n_blocks,), the selector's score of every block; -inf for a block that a learned selector did not score. See
            `decided`.
        evidence: shape (5,), the features that fusion adds to the logit.
        reach: shape (n_taken, 2), the range of blocks that each of them stands for: the first, and the one after the last. If
            passages grow, the blocks that its sequence holds; else the block alone.
        by: what chose the blocks; None if every block is read in full, or there is none.
        selection_tokens: tokens that the model read to choose, if it chose.
        shared: the query's terms in the blocks, and whether the model has learned such texts, if the pipeline says what the model
            was trained on; see `keyblock.pooled`.
    """

    sequences: list[Packed]
    taken: NDArray[np.intp]
    scores: NDArray[np.float64]
    evidence: NDArray[np.float64]
    reach: NDArray[np.intp]
    by: SelectedBy | None = None
    selection_tokens: int = 0
    shared: Shared | None = None

    @property
    def packed(self) -> Packed:
        """The only sequence of a joint selection."""
        (packed,) = self.sequences
        return packed

    def decided(self, passages: NDArray[np.float32]) -> Self:
        """The same, with the chosen blocks scored and ordered by the model's scores of their passages.

        Args:
            passages: shape (n_taken,), scores of the sequences in document order; see `keyblock.aggregation.Aggregated`.
        """
        in_document, scores = np.argsort(self.taken), self.scores.copy()
        scores[self.taken[in_document]] = passages
        order = in_document[rank_blocks(np.asarray(passages, dtype=np.float64))]
        return replace(self, taken=self.taken[order], scores=scores, reach=self.reach[order])


def single_reach(taken: NDArray[np.intp]) -> NDArray[np.intp]:
    """The reach of blocks without neighbours, each block alone, shape (n_taken, 2): see Selection."""
    return np.stack([taken, taken + 1], axis=1)
