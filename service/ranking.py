"""From logits and lexical evidence to an order: fusion, the relevance score, and documents that the model cannot score."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.fusion import Fusion, sigmoid
from keyblock.packing import Packed
from keyblock.pipeline import Selection
from keyblock.prepared import PreparedDocument

LOWEST = -100.0  # the logit of a document without a block: the sigmoid of it is 0


class Block(NamedTuple):
    """A selected block: offsets into the document's text in code points, and the selector's score."""

    start: int
    end: int
    score: float


class Candidate(NamedTuple):
    """What is kept of a document once it has met the query.

    Attributes:
        sequences: the model's inputs; none for a document without a block.
        evidence: shape (3,), see `keyblock.fusion.lexical_evidence`.
        blocks: the blocks in `sequences`, best first.
        selection_tokens: that a learned selector was fed beside.
    """

    sequences: list[Packed]
    evidence: NDArray[np.float64]
    blocks: list[Block]
    selection_tokens: int = 0


def candidate(document: PreparedDocument, selection: Selection, selection_tokens: int = 0) -> Candidate:
    """Keep what scoring and answering need; the prepared document itself is large."""
    if not document.n_blocks:
        return Candidate([], selection.evidence, [])
    taken = selection.taken
    places = (document.starts[taken].tolist(), document.ends[taken].tolist(), block_scores(selection).tolist())
    blocks = [Block(*place) for place in zip(*places, strict=True)]
    return Candidate(selection.sequences, selection.evidence, blocks, selection_tokens)


def block_scores(selection: Selection) -> NDArray[np.float64]:
    """The selector's scores of the chosen blocks, best first, all finite.

    Blocks that a learned selector was not asked about come last and have LOWEST, or its lowest score where that is lower still.
    """
    scores = selection.scores[selection.taken]
    if len(scores) and scores[-1] == -np.inf:
        asked = scores > -np.inf
        scores[~asked] = scores[asked].min(initial=LOWEST)
    return scores


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    """The answer to a call, whatever its dialect.

    Attributes:
        order: document numbers, best first, as many as were asked for.
        scores: shape (n_documents,), on the scale that was asked for.
        by_model: shape (n_documents,), False where the model had nothing to score.
        blocks: for each document its selected blocks, best first.
        budget: tokens a sequence could have.
        n_tokens: tokens fed to the model, to select and to score, padding not counted.
    """

    order: list[int]
    scores: NDArray[np.float64]
    by_model: NDArray[np.bool_]
    blocks: list[list[Block]]
    budget: int
    n_tokens: int


def rank(
    candidates: Sequence[Candidate], logits: NDArray[np.float32], fusion: Fusion, budget: int, *, top_n: int, raw: bool
) -> Ranking:
    """Order the candidates.

    Args:
        candidates: in the order given.
        logits: shape (n_documents,); what it says of candidates without a sequence is not read.
        fusion: from logit and evidence to the fused logit.
        budget: tokens a sequence could have.
        top_n: how many to return; 0 for all.
        raw: whether scores stay logits.
    """
    by_model = np.asarray([bool(c.sequences) for c in candidates], dtype=np.bool_)
    fused = np.full(len(candidates), LOWEST)
    if by_model.any():
        evidence = np.asarray([c.evidence for c in candidates if c.sequences])
        fused[by_model] = fusion.fuse(logits[by_model], evidence)
        fused[~by_model] = min(LOWEST, fused[by_model].min())
    # what the model has not scored comes last, whatever the numbers; equal scores keep the order given
    order = np.lexsort((-fused, ~by_model))
    scores = fused if raw else np.where(by_model, sigmoid(fused), 0.0)
    n_tokens = sum(c.selection_tokens + sum(len(packed.ids) for packed in c.sequences) for c in candidates)
    return Ranking(order[: top_n or None].tolist(), scores, by_model, [c.blocks for c in candidates], budget, n_tokens)
