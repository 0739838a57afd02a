"""Measures how often selectors put a block of the gold passage among the best few blocks of its document."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.selectors import Selector, rank_blocks
from training.evaluation.intrinsic import segmented
from training.evaluation.passages import term_overlap
from training.examples.preparation import Preparation

BEST = 3  # blocks: about what the default budget reads of a document
DECILE = 10


class Judged(NamedTuple):
    """A query and a document that holds its gold passage, with the scores of some selectors.

    Attributes:
        right: shape (n_blocks,), which blocks hold the passage; at least one does.
        scores: shape (n_selectors, n_blocks).
        overlap: share of the query's terms that occur in a right block.
    """

    right: NDArray[np.bool_]
    scores: NDArray[np.float64]
    overlap: float


class Found(NamedTuple):
    """Shares of queries with a right block among the BEST.

    Attributes:
        queries: the number of queries.
        of_all: the share among all queries.
        of_least_overlap: the share among the tenth of the queries whose terms overlap least with the passage.
    """

    queries: int
    of_all: float
    of_least_overlap: float


def judge(preparation: Preparation, queries: Sequence[str], selectors: Sequence[Selector]) -> list[Judged]:
    """The queries with a block that holds their passage, and the blocks' scores by selectors that need no model."""
    judged = []
    for query_id, doc_id, right in segmented(preparation, queries):
        query, document = preparation.query(query_id), preparation.document(doc_id)
        scores = [selector.scores(query, document, preparation.pipeline.frequencies) for selector in selectors]
        judged.append(Judged(right, np.stack(scores), term_overlap(query, document, right)))
    return judged


def figures(judged: Sequence[Judged], weights: NDArray[np.float64]) -> Found:
    """The figures of a weighted sum of the selectors' scores, shape (n_selectors,). Raises ValueError without queries."""
    if not judged:
        raise ValueError("no query has a gold passage (spans.jsonl) that a block holds: selection cannot be measured")
    hits = np.asarray([bool(right[rank_blocks(weights @ scores)[:BEST]].any()) for right, scores, _ in judged])
    least = np.argsort([one.overlap for one in judged], kind="stable")[: max(1, len(judged) // DECILE)]
    return Found(len(hits), float(hits.mean()), float(hits[least].mean()))


def learned_weights(judged: Mapping[str, Sequence[Judged]], smallest: float = 0.0) -> NDArray[np.float64]:
    """Weights of the selectors' scores, shape (n_selectors,), that make the right blocks most likely.

    A softmax over a document's blocks gives the probability of each block. The weights maximise the mean logarithm of the right
    blocks' total probability; every collection counts the same (a conditional logit; McFadden 1974). Only the proportions of the
    weights matter for an order.

    Args:
        judged: the judged queries by collection; none of the lists is empty.
        smallest: the lower bound of a weight.
    """
    from scipy.optimize import minimize

    groups = [(right, scores, 1 / len(group)) for group in judged.values() for right, scores, _ in group]
    count = len(groups[0][1])

    def loss(weights: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        total, slope = 0.0, np.zeros(count)
        for right, scores, share in groups:
            logits = weights @ scores
            exponents = np.exp(logits - logits.max())
            of_right = np.where(right, exponents, 0.0)
            total -= share * float(np.log(of_right.sum() / exponents.sum()))
            slope -= share * (scores @ (of_right / of_right.sum() - exponents / exponents.sum()))
        return total, slope

    fitted = minimize(loss, np.ones(count), jac=True, method="L-BFGS-B", bounds=[(smallest, None)] * count)
    return np.asarray(fitted.x)
