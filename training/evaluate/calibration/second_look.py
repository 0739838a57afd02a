"""The second look, learned on dev: weights that rank the documents which it reads, then a scale and a bias, as in `fit`."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray
from tqdm import tqdm

from keyblock.fusion import Fusion, SecondLook
from training.evaluate.calibration.fit import DevScores, listwise_weights, logistic_weights
from training.evaluate.ranking import LocalRanker

FAR = 1e9  # a margin that leaves no document out
PRIOR = 5.0  # weight of the normal prior around a second look that changes nothing, counted in queries as in `fit`

MORE = "judge more, raise --queries, or let it read more documents (--second-look)"


@dataclass
class LookedScores(DevScores):
    """Dev candidates of which the best were read on.

    Attributes:
        further: by query, shape (n_candidates,), the logit of the best further block; NaN where the model has not read on.
        look: says how many are read, and changes their fused scores.
    """

    further: dict[str, NDArray[np.float64]]
    look: SecondLook

    def fused(self, query: str, fusion: Fusion, kept: NDArray[np.bool_] | None = None) -> NDArray[np.float64]:
        """See DevScores."""
        fused = super().fused(query, fusion, kept)
        best, further = self._best(query, fused, kept)
        return self.look.joined(fused, best.tolist(), self.look.fuse(fused[best], further).tolist())

    def read(
        self, query: str, fusion: Fusion, kept: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The fused score before and the further logit of what is read, shape (n_read, 2), and the labels, shape (n_read,)."""
        fused = super().fused(query, fusion, kept)
        best, further = self._best(query, fused, kept)
        labels = self.labels(query) if kept is None else self.labels(query)[kept]
        return np.column_stack([fused[best], further]), labels[best]

    def _best(
        self, query: str, fused: NDArray[np.float64], kept: NDArray[np.bool_] | None
    ) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
        further = self.further[query] if kept is None else self.further[query][kept]
        best = self.look.chosen(np.argsort(-fused, kind="stable"), fused)
        best = best[~np.isnan(further[best])]
        return best, further[best]


def look_at_dev(scores: DevScores, ranker: LocalRanker, look: SecondLook) -> LookedScores:
    """Read on in all candidates of each query: in a shorter list, which the threshold is chosen on too, others are the best.

    Args:
        scores: of the first look.
        ranker: the system, whose pipeline has the fusion that chooses the best candidates.
        look: how far to read.
    """

    @cache
    def reading(most: int) -> LocalRanker:
        return ranker.with_pipeline(second_look=SecondLook(documents=most, blocks=look.blocks, margin=FAR), pre_ranking=None)

    found = LookedScores(scores.collection, scores.features, scores.documents, {}, look)
    for query, documents in tqdm(scores.documents.items(), desc=f"{scores.collection.name}, second look"):
        outcome = reading(len(documents)).answered(query, documents).outcome
        further = np.full(len(documents), np.nan)
        if outcome is not None:
            further[list(outcome.looked.documents)] = [logits.max() for logits in outcome.looked.logits]
        found.further[query] = further
    return found


def fit_second_look(scored: Sequence[LookedScores], fusion: Fusion) -> SecondLook:
    """Weights that rank what is read, then a scale and a bias that make the sigmoid a probability (Platt 1999).

    Every collection counts the same.

    Args:
        scored: dev candidates of each collection, at least one of which is relevant.
        fusion: of the first look.

    Raises ValueError if none of the documents that it reads is relevant, or the lower ones are.
    """
    whole = [[one.read(query, fusion) for query in one.features] for one in scored]
    groups = [[(rows, labels) for rows, labels in of if labels.any()] for of in whole]
    if not any(groups):
        raise ValueError(f"second look: no relevant document is among those that it reads; {MORE}")
    rows = np.concatenate([rows for of in whole for rows, _ in of])
    prior = PRIOR / sum(map(len, groups))
    first, further = listwise_weights(groups, np.asarray([1.0, 0.0]), rows.std(axis=0), prior)
    weights = np.asarray([first, max(further, 0.0)])
    labels = np.concatenate([labels for of in whole for _, labels in of])
    sizes = [sum(len(labels) for _, labels in of) for of in whole]
    scale, bias = logistic_weights((rows @ weights)[:, None], labels, sizes, prior)
    first, further = (scale * weights).tolist()
    if first <= 0:  # no pipeline could hold it
        raise ValueError(f"second look: the relevant documents are the lower ones of those that it reads; {MORE}")
    return scored[0].look.model_copy(update={"bias": bias, "first": first, "further": further})


def with_look(scored: Sequence[LookedScores], look: SecondLook) -> list[LookedScores]:
    """The same, with the learned look."""
    return [replace(one, look=look) for one in scored]
