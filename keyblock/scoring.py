"""A model in this process, and the drivers of the ranking flow that need nothing else: one flow at once, or many in lockstep."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from keyblock.aggregation import Aggregated, Aggregator, aggregate
from keyblock.packing import Packed, weights_of
from keyblock.pipeline import Pipeline, Selection
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.ranking.answer import Scores, finished
from keyblock.ranking.flow import Answer, Choose, Flow, Pack, Prepare, Read, Score, Step, choosing
from keyblock.ranking.pruning import never

T = TypeVar("T")
ScoreSequences = Callable[[Sequence[Packed]], NDArray[np.float32]]
"""Logits of shape (sequences,), or outputs of shape (sequences, 1 + hidden), the logit first."""


class Model(Protocol):
    """A model that scores: in PyTorch, or a bundle's graphs."""

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        """Logits of shape (sequences,); for ``states`` shape (sequences, 1 + hidden): the logit, then the [CLS] state."""

    def choose(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        """Logits of shape (sequences,) of single blocks, for a learned selector."""

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        """The learned aggregator: see `keyblock.aggregation.Combine`."""


class Marks(NamedTuple):
    """A model's outputs for sequences, in the order given.

    Attributes:
        outputs: see `Model.outputs`.
        marks: for each sequence the logits of its tokens, shape (length,); None if the model does not mark tokens.
    """

    outputs: NDArray[np.float32]
    marks: list[NDArray[np.float32]] | None


@runtime_checkable
class Marking(Protocol):
    """A model that may mark the answering tokens in the pass that scores."""

    def mark(self, sequences: Sequence[Packed]) -> Marks:
        """The outputs of `Model.outputs`, and marks."""


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


def drive(flow: Flow[T], documents: Sequence[PreparedDocument], aggregator: Aggregator, model: Model) -> T:
    """The result of one flow, performed at once; see `drive_all`."""
    return drive_all([flow], [documents], aggregator, model)[0]


def drive_all(
    flows: Sequence[Flow[T]],
    documents: Sequence[Sequence[PreparedDocument]],
    aggregator: Aggregator,
    model: Model,
) -> list[T]:
    """The results of many flows, in their order. What they need of the model at the same time it computes together.

    Args:
        flows: of one pipeline; none has documents in a store.
        documents: of each flow, prepared.
        aggregator: the pipeline's.
        model: scores.
    """
    results: dict[int, T] = {}
    outcomes: Mapping[int, Any] = dict.fromkeys(range(len(flows)))
    while outcomes:
        steps: dict[int, Choose | Score] = {}
        for number, outcome in outcomes.items():
            try:
                steps[number] = _until_model(flows[number], outcome, documents[number])
            except StopIteration as ended:
                results[number] = ended.value
        outcomes = _chosen(steps, model) | _scored(steps, aggregator, model)
    return [results[number] for number in range(len(flows))]


def _until_model(flow: Flow[Any], outcome: Any, documents: Sequence[PreparedDocument]) -> Choose | Score:
    """Perform the steps of a flow up to the next for which it needs the model. Raises StopIteration at its end."""
    while not isinstance(step := flow.send(outcome), Choose | Score):
        outcome = _performed(step, documents)
    return step


def _performed(step: Step, documents: Sequence[PreparedDocument]) -> Any:
    match step:
        case Prepare():
            return step.do()
        case Answer():
            return finished(step.steps(never))
        case Read():
            return step.choose(documents)
        case Pack():
            return step.choose(range(len(step.tokens)))
    raise ValueError("documents by id need a store: prepare them, or ask a service")


def _chosen(steps: Mapping[int, Step], model: Model) -> dict[int, NDArray[np.float32]]:
    """The logits that each of the `Choose` steps asks for."""
    sequences = {number: step.sequences for number, step in steps.items() if isinstance(step, Choose)}
    packed = [one for of_flow in sequences.values() for one in of_flow]
    logits = model.choose(packed) if packed else np.zeros(0, np.float32)
    ends = np.cumsum([len(of_flow) for of_flow in sequences.values()])
    return dict(zip(sequences, np.split(logits, ends[:-1]), strict=False))


def _scored(steps: Mapping[int, Step], aggregator: Aggregator, model: Model) -> dict[int, Scores]:
    """The scores that each of the `Score` steps asks for."""
    scoring = {number: step for number, step in steps.items() if isinstance(step, Score)}
    sequences = [one.sequences for step in scoring.values() for one in step.candidates]
    marks = any(step.marks for step in scoring.values())
    (logits, passages), of_tokens = score_sequences(aggregator, sequences, model, marks=marks)
    scores: dict[int, Scores] = {}
    n_documents, n_sequences = 0, 0
    for number, step in scoring.items():
        documents = slice(n_documents, n_documents := n_documents + len(step.candidates))
        own = slice(n_sequences, n_sequences := n_sequences + sum(len(one.sequences) for one in step.candidates))
        scores[number] = Scores(logits[documents], passages[own], None if of_tokens is None else of_tokens[own])
    return scores


def select_documents(
    pipeline: Pipeline,
    query: PreparedQuery,
    documents: Sequence[PreparedDocument],
    choose: ScoreSequences,
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
    if not documents:
        return []
    flow = choosing(pipeline, query, budget, lambda _, selection: selection)
    outcome: Any = None
    while True:
        try:
            step = flow.send(outcome)
        except StopIteration as ended:
            selections: list[Selection] = ended.value.documents
            return selections
        if isinstance(step, Choose):
            outcome = choose(step.sequences) if step.sequences else np.zeros(0, np.float32)
        else:
            outcome = _performed(step, documents)


def score_documents(
    pipeline: Pipeline, query: PreparedQuery, documents: Sequence[PreparedDocument], model: Model, budget: int | None = None
) -> Scored:
    """Select, score and aggregate. Raises ValueError for a budget without room beside the query."""
    selections = select_documents(pipeline, query, documents, model.choose, budget)
    return score_selections(pipeline, selections, model)


def score_selections(pipeline: Pipeline, selections: Sequence[Selection], model: Model) -> Scored:
    """Score and aggregate the selected blocks."""
    (logits, passages), marks = score_sequences(pipeline.aggregator, [selection.sequences for selection in selections], model)
    counts = [len(selection.sequences) for selection in selections]
    ends = np.cumsum(counts)
    of_tokens = None if marks is None else [marks[end - count : end] for end, count in zip(ends, counts, strict=True)]
    if pipeline.aggregator.joint:
        return Scored(logits, list(selections), of_tokens)
    of_documents = np.split(passages, ends)[:-1]
    return Scored(logits, [one.decided(own) for one, own in zip(selections, of_documents, strict=True)], of_tokens)


def score_sequences(
    aggregator: Aggregator, documents: Sequence[Sequence[Packed]], model: Model, *, marks: bool = True
) -> tuple[Aggregated, list[NDArray[np.float32]] | None]:
    """Score documents, each given by its sequences, and mark their tokens if that is wanted and the model can."""
    counts = np.asarray([len(sequences) for sequences in documents], dtype=np.intp)
    if not counts.sum():
        return Aggregated(np.full(len(counts), -np.inf, dtype=np.float32), np.zeros(0, np.float32)), None
    packed = [one for sequences in documents for one in sequences]
    found = model.mark(packed) if marks and isinstance(model, Marking) else None
    outputs = model.outputs(packed) if found is None else found.outputs
    aggregated = aggregate(aggregator, outputs, counts, model.combine, weights_of(packed))
    return aggregated, None if found is None else found.marks
