"""From the model's outputs for a document's sequences to one score of the document.

``joint`` reads all chosen blocks as one sequence (KeyB(vBERT)). The other aggregators read each chosen block separately and combine
the scores (``max``: MaxP and BeST, ``mean``: AvgP, ``sum``: SumP, ``term_weighted``: a mean weighted by query terms), or combine
the [CLS] states by a learned module (``states``: PARADE).
"""

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from keyblock.registry import Component, Registry

Combine = Callable[[NDArray[np.float32], NDArray[np.bool_]], NDArray[np.float32]]
"""A learned module: from states (documents, passages, hidden) and a mask of the real passages to logits (documents,)."""


class Aggregated(NamedTuple):
    """The model's scores of documents.

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
    weighted: ClassVar[bool] = False  # whether `combine` gets the sequences' weights, 0 for padding, as the mask

    def combine(self, logits: Any, mask: Any, of: Any = np) -> Any:
        """Document logits (documents,) from the logits of their sequences and a mask of the real ones, both (documents, passages).

        Every document has a sequence. The arrays belong to the module `of`: NumPy in serving, torch in training.
        """
        raise TypeError(f"{type(self).__name__} does not combine scores")


AGGREGATORS: Registry[Aggregator] = Registry("aggregator")


@AGGREGATORS.register("joint")
class Joint(Aggregator):
    """All chosen blocks in one sequence, as many as its budget holds."""

    joint: ClassVar[bool] = True

    def combine(self, logits: Any, mask: Any, of: Any = np) -> Any:
        """The logit of the only sequence."""
        return logits[:, 0]


class PassageAggregator(Aggregator):
    """Each chosen block is a separate sequence."""

    passages: int = Field(0, ge=0, description="how many of a document's best blocks are read; 0 for all")


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
    """The mean of the sequences' scores, weighted by the query terms in each (Santos, section 3.3, equation 7)."""

    weighted: ClassVar[bool] = True

    def combine(self, logits: Any, mask: Any, of: Any = np) -> Any:
        """See Aggregator; with a boolean mask it is the plain mean."""
        return (of.where(mask > 0, logits, 0.0) * mask).sum(1) / mask.sum(1)


@AGGREGATORS.register("states")
class States(PassageAggregator):
    """A learned module over the sequences' [CLS] states (PARADE); the module is part of the model."""

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
        aggregator: how to combine them.
        outputs: the model's outputs, document by document: logits of shape (sequences,), or (sequences, 1 + hidden), where the
            sequence's logit precedes its [CLS] state.
        counts: shape (documents,), sequences of each; a document without any gets -inf.
        combine: the learned module, for ``states``.
        weights: shape (sequences,), above 0: see `keyblock.packing.weights_of`; for an aggregator that weighs sequences.

    Raises ValueError if the aggregator needs a learned module, or weights, and they are missing.
    """
    logits = np.full(len(counts), -np.inf, dtype=np.float32)
    passages = outputs if outputs.ndim == 1 else outputs[:, 0]
    present = np.flatnonzero(counts)
    if not len(present):
        return Aggregated(logits, passages)
    mask = np.arange(counts.max()) < counts[present, None]
    if not aggregator.learned:
        logits[present] = aggregator.combine(_padded(passages, mask), _weighted(aggregator, mask, weights))
    elif combine is None or outputs.ndim < 2:
        raise ValueError("the aggregator combines [CLS] states, but the model has no module for it")
    else:
        states = outputs[:, 1:]
        logits[present] = combine(_padded(states, mask), mask)
        passages = combine(states[:, None], np.ones((len(states), 1), dtype=np.bool_))
    return Aggregated(logits, passages)


def _weighted(aggregator: Aggregator, mask: NDArray[np.bool_], weights: NDArray[np.float32] | None) -> NDArray[Any]:
    """The mask for the aggregator; if it weighs sequences, with their weights in place of True."""
    if not aggregator.weighted:
        return mask
    if weights is None:
        raise ValueError(f"the aggregator {aggregator.name!r} weighs sequences, but nothing says what each counts for")
    return _padded(weights, mask)


def _padded(values: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
    """Values of shape (sequences, ...), placed row by row where the mask is True; zeros elsewhere."""
    padded = np.zeros((*mask.shape, *values.shape[1:]), dtype=np.float32)
    padded[mask] = values
    return padded
