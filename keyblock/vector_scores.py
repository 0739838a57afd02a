"""Scores from stored vectors: the ranker is a bi-encoder that has read the documents before the query arrives.

A pipeline with a `cosine_scale` needs no graph to score: each chosen block's logit is the cosine of its vector and the query's,
times this scale, and comes with the selection. Scoring a document stored by id costs one product (Reimers and Gurevych 2019; for
documents Santos, Sentence-level representations for document ranking).
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from keyblock.packing import Packed
from keyblock.prepared import PreparedDocument, PreparedQuery, similarities

NO_TOKENS = np.zeros(0, np.int32)


def scored_blocks(query: PreparedQuery, document: PreparedDocument, blocks: NDArray[np.intp], scale: float) -> list[Packed]:
    """One sequence for each of the blocks, shape (n,), in the order given, with its logit and without tokens.

    Raises ValueError if query or document were prepared without vectors.
    """
    logits = scale * similarities(query, document)[blocks]
    return [Packed(NO_TOKENS, 0, blocks[i : i + 1], logit=logit) for i, logit in enumerate(logits.tolist())]


class VectorModel:
    """Implements `keyblock.scoring.Model` for a pipeline with a `cosine_scale`: passes on the sequences' logits."""

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        """See `keyblock.scoring.Model`. Raises ValueError for a sequence that a model has to read."""
        if any(one.logit is None for one in sequences):
            raise ValueError("a sequence of tokens has no score of vectors: its pipeline needs a cosine_scale")
        return np.asarray([one.logit for one in sequences], np.float32)

    def choose(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        """See `keyblock.scoring.Model`. Raises ValueError: no such pipeline has a learned selector."""
        raise ValueError("vectors choose no blocks for a learned selector: it needs a bundle with a graph")

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """See `keyblock.scoring.Model`. Raises ValueError: vectors give no states."""
        raise ValueError("vectors give scores of blocks, and no states to combine")
