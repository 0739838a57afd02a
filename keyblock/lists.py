"""Ranking of candidate lists.

Each query meets its documents, the sequences of many lists are scored together, and each list is ordered separately.
`keyblock.Ranker` ranks one list this way, keyblock-bulk a shard of lists: the scores are the same up to arithmetic.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from keyblock.answering import Answered, AnswerOptions, Documents, answered
from keyblock.first_stage import NOT_SENT, FirstStage
from keyblock.order import Candidate, Ranking, candidate, rank, with_first_stage, without_spared
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.scoring import Model, score_sequences, select_documents

_LONE = re.compile("[\ud800-\udfff]")


def without_surrogates(text: str) -> str:
    """The text with U+FFFD for each lone surrogate, which no encoding can represent; all of KeyBlock reads texts this way."""
    return _LONE.sub("\ufffd", text)


@dataclass(frozen=True, slots=True)
class CandidateList:
    """A query that has met its documents.

    Attributes:
        query: the prepared query.
        candidates: the documents with their chosen blocks, in first-stage order.
        texts: the documents' texts; each may be "" if the call requests no spans or contexts.
        first_stage: the first stage's scores or ranks of the documents.
    """

    query: PreparedQuery
    candidates: Sequence[Candidate]
    texts: Sequence[str]
    first_stage: FirstStage = NOT_SENT


def meet(
    pipeline: Pipeline,
    model: Model,
    query: PreparedQuery,
    documents: Sequence[PreparedDocument],
    budget: int | None = None,
) -> list[Candidate]:
    """Choose the blocks of each document; the candidates are much smaller than the prepared documents.

    Args:
        pipeline: its selector chooses.
        model: chooses blocks, if the selector is learned.
        query: the query.
        documents: in first-stage order.
        budget: tokens a sequence may have, as for `Pipeline.select`.
    """
    selections = select_documents(pipeline, query, documents, model.choose, budget)
    return [candidate(*pair) for pair in zip(documents, selections, strict=True)]


def rank_lists(
    pipeline: Pipeline, model: Model, lists: Sequence[CandidateList], options: AnswerOptions, budget: int, *, raw: bool = False
) -> Iterator[Answered]:
    """The answer to each list; the model scores the sequences of all lists together, in batches sorted by length.

    It does not read documents that the pipeline's cascade spares.

    Args:
        pipeline: made the lists' candidates.
        model: scores the sequences.
        lists: in any order; the answers come in the same order.
        options: what the answers hold in addition to the order.
        budget: tokens a sequence could have.
        raw: whether scores stay logits.
    """
    lists = [replace(one, candidates=_cascaded(pipeline, one, options)) for one in lists]
    (logits, passages), marks = score_sequences(pipeline, [c.sequences for one in lists for c in one.candidates], model)
    n_documents, n_sequences = 0, 0
    for one in lists:
        of_documents = slice(n_documents, n_documents := n_documents + len(one.candidates))
        of_sequences = slice(n_sequences, n_sequences := n_sequences + sum(len(c.sequences) for c in one.candidates))
        order = _in_order(pipeline, one, logits[of_documents], passages[of_sequences], budget, raw=raw)
        own_marks = None if marks is None else marks[of_sequences]
        yield answered(pipeline, one.query, Documents(one.candidates, one.texts, own_marks), order, options)


def _cascaded(pipeline: Pipeline, one: CandidateList, options: AnswerOptions) -> Sequence[Candidate]:
    return without_spared(one.candidates, pipeline.config, options.results(one.first_stage, pipeline.config))


def _in_order(
    pipeline: Pipeline,
    one: CandidateList,
    logits: NDArray[np.float32],
    passages: NDArray[np.float32],
    budget: int,
    *,
    raw: bool,
) -> Ranking:
    """All documents of a list in the model's order, fused with the first stage's if the call or the bundle asks for that."""
    config, decided = pipeline.config, None if pipeline.aggregator.joint else passages
    order = rank(
        one.candidates,
        logits,
        config.fusion,
        budget,
        raw=raw,
        near=config.near_tokens,
        passages=decided,
        activation=config.activation,
    )
    return with_first_stage(order, one.first_stage, config.first_stage)
