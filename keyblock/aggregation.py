"""From what the model says of a document's sequences to one score of the document.

``joint`` reads all chosen blocks as one sequence (KeyB(vBERT)). The others read each chosen block for itself and combine the scores
(``max``: MaxP and BeST, ``mean``: AvgP, ``sum``: SumP, ``term_weighted``: a mean by the query's terms in each), or, through a
learned module, the [CLS] states (``states``: PARADE).
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from keyblock.registry import Component, Registry

Combine = Callable[[NDArray[np.float32], NDArray[np.bool_]], NDArray[np.float32]]
"""A learned module: states of shape (documents, passages, hidden) and a mask of the real ones to logits of shape (documents,)."""


class Aggregated(NamedTuple):
    """What the model says of documents.

    Attributes:
        logits: shape (documents,); -inf for a document without a sequence.
        passages: shape (sequences,), the logit that the document would have if this were its only sequence.
    """

    logits: NDArray[np.float32]
    passages: NDArray[np.float32]


class Aggregator(Component):
    """How the sequences of a document become its logit."""

    joint: ClassVar[bool] = False
    learned: ClassVar[bool] = False
    weighted: ClassVar[bool] = False  # whether `combine` is given the sequences' weights, 0 for padding, as the mask

    def combine(self, logits: Any, mask: Any, of: Any = np) -> Any:
        """Document logits of shape (documents,) from those of its sequences and a mask of the real ones, (documents, passages).

        Every document has a sequence. The arrays are those of the module `of`: NumPy's in serving, torch's in training.
        """
        raise TypeError(f"{type(self).__name__} does not combine scores")


AGGREGATORS: Registry[Aggregator] = Registry("aggregator")


@AGGREGATORS.register("joint")
class Joint(Aggregator):
    """All chosen blocks in one sequence, as many as its budget holds."""

    joint: ClassVar[bool] = True

    def combine(self, logits: Any, mask: Any, of: Any = np) -> Any:
        """The one sequence's logit."""
        return logits[:, 0]


class PassageAggregator(Aggregator):
    """Each chosen block is a sequence of its own."""

    passages: int = Field(0, ge=0, description="blocks of a document that are read, the best ones; 0 for all of them")


@AGGREGATORS.register("max")
class Max(PassageAggregator):
    """The best sequence's score (MaxP, Dai and Callan 2019)."""

    def combine(self, logits: Any, mask: Any, of: Any = np) -> Any:
        """See Aggregator."""
        return of.amax(of.where(mask, logits, -np.inf), 1)


@AGGREGATORS.register("mean")
class Mean(PassageAggregator):
    """The mean of the sequences' scores (AvgP)."""

    def combine(self, logits: Any, mask: Any, of: Any = np) -> Any:
        """See Aggregator."""
        return of.where(mask, logits, 0.0).sum(1) / mask.sum(1)


@AGGREGATORS.register("sum")
class Sum(PassageAggregator):
    """The sum of the sequences' scores (SumP): long documents gain or lose by their length."""

    def combine(self, logits: Any, mask: Any, of: Any = np) -> Any:
        """See Aggregator."""
        return of.where(mask, logits, 0.0).sum(1)


@AGGREGATORS.register("term_weighted")
class TermWeighted(PassageAggregator):
    """The mean of the sequences' scores by the query terms that each holds (Santos, section 3.3, equation 7)."""

    weighted: ClassVar[bool] = True

    def combine(self, logits: Any, mask: Any, of: Any = np) -> Any:
        """See Aggregator; of a mask of truth values the plain mean."""
        return (of.where(mask > 0, logits, 0.0) * mask).sum(1) / mask.sum(1)


@AGGREGATORS.register("states")
class States(PassageAggregator):
    """A learned module over the sequences' [CLS] states (PARADE); the module travels with the model."""

    learned: ClassVar[bool] = True


def aggregate(
    aggregator: Aggregator,
    outputs: NDArray[np.float32],
    counts: NDArray[np.intp],
    combine: Combine | None = None,
    weights: NDArray[np.float32] | None = None,
) -> Aggregated:
    """Combine the sequences of each document.

    Args:
        aggregator: says how.
        outputs: the model's, document by document: logits of shape (sequences,), or (sequences, 1 + hidden), the logit of the
            sequence alone in front of its [CLS] state.
        counts: shape (documents,), sequences of each; a document without any gets -inf.
        combine: the learned module, for ``states``.
        weights: shape (sequences,), above 0: see `keyblock.packing.weights_of`; for an aggregator that weighs them.

    Raises ValueError where the aggregator needs a learned module, or weights, and there are none.
    """
    logits = np.full(len(counts), -np.inf, dtype=np.float32)
    passages = outputs if outputs.ndim == 1 else outputs[:, 0]
    some = np.flatnonzero(counts)
    if not len(some):
        return Aggregated(logits, passages)
    mask = np.arange(counts.max()) < counts[some, None]
    if not aggregator.learned:
        logits[some] = aggregator.combine(_padded(passages, mask), _weighted(aggregator, mask, weights))
    elif combine is None or outputs.ndim < 2:
        raise ValueError("the aggregator combines [CLS] states, but the model has no module for it")
    else:
        states = outputs[:, 1:]
        logits[some] = combine(_padded(states, mask), mask)
        passages = combine(states[:, None], np.ones((len(states), 1), dtype=np.bool_))
    return Aggregated(logits, passages)


def _weighted(aggregator: Aggregator, mask: NDArray[np.bool_], weights: NDArray[np.float32] | None) -> NDArray[Any]:
    """The mask that the aggregator reads: the weights in its places where it weighs."""
    if not aggregator.weighted:
        return mask
    if weights is None:
        raise ValueError(f"the aggregator {aggregator.name!r} weighs sequences, but nothing says what each counts for")
    return _padded(weights, mask)


def _padded(values: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Values of shape (sequences, ...), dealt out to the mask's places row by row; zeros elsewhere."""
    padded = np.zeros((*mask.shape, *values.shape[1:]), dtype=np.float32)
    padded[mask] = values
    return padded
