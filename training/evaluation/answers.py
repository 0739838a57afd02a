"""Measures how well a query's best score tells whether any candidate answers it.

Each dev query counts twice: as it is, and without its relevant candidates, when no candidate answers it. A score that means the
same for all queries separates the two.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.evidence import Fusion, sigmoid
from training.evaluation.calibration import DevScores, calibration_gap


class Tops(NamedTuple):
    """The best relevance score of each query.

    Attributes:
        answered: shape (n_answered,), for the queries with a relevant candidate.
        unanswered: shape (n_unanswered,), for the same queries without their relevant candidates, and for those that have none.
        right: shape (n_answered,), whether the best candidate is relevant.
    """

    answered: NDArray[np.float64]
    unanswered: NDArray[np.float64]
    right: NDArray[np.bool_]

    @property
    def judged(self) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """All best scores, and whether each is a relevant candidate's (1 or 0): shape (n_answered + n_unanswered,) each."""
        return np.concatenate([self.answered, self.unanswered]), np.concatenate([self.right, np.zeros(len(self.unanswered))])


class Threshold(NamedTuple):
    """A relevance score below which no candidate answers, measured with an answer for half of the queries.

    Attributes:
        score: the threshold.
        precision: the share of queries with an answer among those whose best score reaches it.
        recall: the share of queries with an answer whose best score reaches it.
        refused: the share of queries without an answer whose best score does not reach it.
    """

    score: float
    precision: float
    recall: float
    refused: float


def top_scores(scores: DevScores, fusion: Fusion) -> Tops:
    """The best relevance scores of the queries, with and without their relevant candidates."""
    answered, unanswered, right = [], [], []
    for query, features in scores.features.items():
        found, relevant = sigmoid(fusion.fuse(features[:, 0], features[:, 1:])), scores.labels(query) > 0
        if relevant.any():
            answered.append(found.max())
            right.append(found[relevant].max() >= found.max())
        if not relevant.all():
            unanswered.append(found[~relevant].max())
    return Tops(np.asarray(answered), np.asarray(unanswered), np.asarray(right, dtype=np.bool_))


def auroc(above: NDArray[np.float64], below: NDArray[np.float64]) -> float:
    """The area under the ROC curve: the share of pairs whose first value is larger; equal values count half.

    Args:
        above: shape (n,), n > 0.
        below: shape (m,), m > 0.
    """
    below = np.sort(below)
    smaller, not_larger = np.searchsorted(below, above, "left"), np.searchsorted(below, above, "right")
    return float((smaller + not_larger).mean() / (2 * len(below)))


def best_threshold(tops: Sequence[Tops]) -> Threshold:
    """The score that best separates queries with an answer from those without; every collection counts the same.

    It maximises Youden's J, recall + refused - 1 (Youden 1950), since the share of a user's queries without an answer is unknown.
    """
    candidates = np.unique(np.concatenate([np.concatenate([one.answered, one.unanswered]) for one in tops]))
    middles = (candidates[1:] + candidates[:-1]) / 2 if len(candidates) > 1 else candidates
    return max((at_threshold(tops, float(score)) for score in middles), key=lambda found: found.recall + found.refused)


def at_threshold(tops: Sequence[Tops], score: float) -> Threshold:
    """The threshold at this score with its rates, as means over the collections."""
    recall = float(np.mean([(one.answered >= score).mean() for one in tops]))
    passed = float(np.mean([(one.unanswered >= score).mean() for one in tops]))
    precision = recall / (recall + passed) if recall + passed else 1.0
    return Threshold(score, precision, recall, 1 - passed)


def top_gap(tops: Tops) -> float:
    """The calibration error of the best candidates' scores alone, with an answer for half of the queries.

    The error over all candidates is small for any score, since nearly all candidates are clearly not relevant.
    """
    return calibration_gap(*tops.judged)
