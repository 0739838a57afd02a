"""A query's documents to their logits: selection, in two rounds where the model selects, then scoring and aggregation."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from keyblock.aggregation import aggregate
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline, Selection
from keyblock.prepared import PreparedDocument, PreparedQuery

Score = Callable[[Sequence[Packed]], NDArray[np.float32]]
"""Logits of shape (sequences,), or outputs of shape (sequences, 1 + hidden), the logit first."""


class Model(Protocol):
    """What scores: a PyTorch model, or a bundle's graphs."""

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        """Logits of shape (sequences,); of a model for ``states``, (sequences, 1 + hidden): the logit, then the [CLS] state."""

    def choose(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        """Logits of shape (sequences,) of single blocks, for a learned selector."""

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """The learned aggregator: see `keyblock.aggregation.Combine`."""


class Scored(NamedTuple):
    """A query's documents.

    Attributes:
        logits: shape (documents,); -inf for a document without a sequence.
        selections: of each document; where each block is a passage of its own, ordered by what the model says of the passages.
    """

    logits: NDArray[np.float32]
    selections: list[Selection]


def select_documents(
    pipeline: Pipeline, query: PreparedQuery, documents: Sequence[PreparedDocument], choose: Score, budget: int | None = None
) -> list[Selection]:
    """Each document's selection; where the model selects, the shortlists of all documents are scored together."""
    if not pipeline.asks_model or not documents:
        return [pipeline.select(query, document, budget) for document in documents]
    shortlists = [pipeline.shortlist(query, document, budget) for document in documents]
    sequences = [packed for shortlist in shortlists for packed in shortlist.sequences]
    logits = choose(sequences) if sequences else np.zeros(0, np.float32)
    ends = np.cumsum([len(shortlist.blocks) for shortlist in shortlists])
    return [
        pipeline.select(query, document, budget, (shortlist, of_document))
        for document, shortlist, of_document in zip(documents, shortlists, np.split(logits, ends[:-1]), strict=True)
    ]


def score_documents(
    pipeline: Pipeline, query: PreparedQuery, documents: Sequence[PreparedDocument], model: Model, budget: int | None = None
) -> Scored:
    """Select, score and aggregate. Raises ValueError for a budget without room beside the query."""
    selections = select_documents(pipeline, query, documents, model.choose, budget)
    return score_selections(pipeline, selections, model)


def score_selections(pipeline: Pipeline, selections: Sequence[Selection], model: Model) -> Scored:
    """Score and aggregate what was selected."""
    counts = np.asarray([len(selection.sequences) for selection in selections], dtype=np.intp)
    if not counts.sum():
        return Scored(np.full(len(counts), -np.inf, dtype=np.float32), list(selections))
    outputs = model.outputs([packed for selection in selections for packed in selection.sequences])
    logits, passages = aggregate(pipeline.aggregator, outputs, counts, model.combine)
    if pipeline.aggregator.joint:
        return Scored(logits, list(selections))
    of_documents = np.split(passages, np.cumsum(counts))[:-1]
    return Scored(logits, [one.decided(own) for one, own in zip(selections, of_documents, strict=True)])
