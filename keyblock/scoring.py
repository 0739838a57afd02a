"""From a query's documents to their logits: selection (in two rounds if the model selects), scoring and aggregation."""

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from keyblock.aggregation import Aggregated, aggregate
from keyblock.packing import Packed, weights_of
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.selection import Selection

Score = Callable[[Sequence[Packed]], NDArray[np.float32]]
"""Logits of shape (sequences,), or outputs of shape (sequences, 1 + hidden), the logit first."""


class Model(Protocol):
    """A model that scores: in PyTorch, or a bundle's graphs."""

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        """Logits of shape (sequences,); for ``states`` shape (sequences, 1 + hidden): the logit, then the [CLS] state."""

    def choose(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        """Logits of shape (sequences,) of single blocks, for a learned selector."""

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """The learned aggregator: see `keyblock.aggregation.Combine`."""


@runtime_checkable
class Marking(Protocol):
    """A model that may mark the answering tokens in the pass that scores."""

    def mark(self, sequences: Sequence[Packed]) -> "Marks":
        """`outputs` as from `Model.outputs`, and the `marks` of each sequence, shape (length,); None if it does not mark tokens."""


class Marks(Protocol):
    """A model's outputs and marks of sequences."""

    @property
    def outputs(self) -> NDArray[np.float32]:
        """See `Model.outputs`."""

    @property
    def marks(self) -> list[NDArray[np.float32]] | None:
        """For each sequence the logits of its tokens, shape (length,); None if the model does not mark tokens."""


class Scored(NamedTuple):
    """The scores of a query's documents.

    Attributes:
        logits: shape (documents,); -inf for a document without a sequence.
        selections: one for each document; if each block is a separate passage, ordered by the model's scores of the passages.
        marks: for each document the token logits of each sequence; None if the model does not mark tokens.
    """

    logits: NDArray[np.float32]
    selections: list[Selection]
    marks: list[list[NDArray[np.float32]]] | None = None


def select_documents(
    pipeline: Pipeline,
    query: PreparedQuery,
    documents: Sequence[PreparedDocument],
    choose: Score,
    budget: int | None = None,
) -> list[Selection]:
    """Each document's selection; if the model selects, it scores all their shortlists together.

    Args:
        pipeline: its selector chooses.
        query: the query.
        documents: in the order given.
        choose: scores single blocks with the model.
        budget: tokens a sequence may have, as for `Pipeline.select`.
    """
    if not pipeline.asks_model:
        return pipeline.select_each(query, documents, budget)
    shortlists = [pipeline.shortlist(query, one, budget) for one in documents]
    sequences = [packed for shortlist in shortlists for packed in shortlist.sequences]
    logits = choose(sequences) if sequences else np.zeros(0, np.float32)
    ends = np.cumsum([len(shortlist.blocks) for shortlist in shortlists], dtype=np.intp)
    of_documents = np.split(logits, ends)[:-1]
    return [
        pipeline.select(query, document, budget, (shortlist, scores))
        for document, shortlist, scores in zip(documents, shortlists, of_documents, strict=True)
    ]


def score_documents(
    pipeline: Pipeline, query: PreparedQuery, documents: Sequence[PreparedDocument], model: Model, budget: int | None = None
) -> Scored:
    """Select, score and aggregate. Raises ValueError for a budget without room beside the query."""
    selections = select_documents(pipeline, query, documents, model.choose, budget)
    return score_selections(pipeline, selections, model)


def score_selections(pipeline: Pipeline, selections: Sequence[Selection], model: Model) -> Scored:
    """Score and aggregate the selected blocks."""
    (logits, passages), marks = score_sequences(pipeline, [selection.sequences for selection in selections], model)
    counts = [len(selection.sequences) for selection in selections]
    ends = np.cumsum(counts)
    of_tokens = None if marks is None else [marks[end - count : end] for end, count in zip(ends, counts, strict=True)]
    if pipeline.aggregator.joint:
        return Scored(logits, list(selections), of_tokens)
    of_documents = np.split(passages, ends)[:-1]
    return Scored(logits, [one.decided(own) for one, own in zip(selections, of_documents, strict=True)], of_tokens)


def score_sequences(
    pipeline: Pipeline, documents: Sequence[Sequence[Packed]], model: Model
) -> tuple[Aggregated, list[NDArray[np.float32]] | None]:
    """Score documents, each given by its sequences, and mark their tokens if the model can."""
    counts = np.asarray([len(sequences) for sequences in documents], dtype=np.intp)
    if not counts.sum():
        return Aggregated(np.full(len(counts), -np.inf, dtype=np.float32), np.zeros(0, np.float32)), None
    packed = [one for sequences in documents for one in sequences]
    found = model.mark(packed) if isinstance(model, Marking) else None
    outputs = model.outputs(packed) if found is None else found.outputs
    aggregated = aggregate(pipeline.aggregator, outputs, counts, model.combine, weights_of(packed))
    return aggregated, None if found is None else found.marks
