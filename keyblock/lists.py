"""Candidate lists on their way to an answer.

Each query meets its documents, what came of many lists is scored together, and each list is ordered by itself. `keyblock.Ranker`
ranks one list this way, and keyblock-bulk a shard of them: the scores are the same up to arithmetic.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from keyblock.answering import Answered, Asked, Documents, answered
from keyblock.first_stage import NOT_SENT, FirstStage
from keyblock.order import Candidate, Ranking, beside_first_stage, candidate, rank, without_spared
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.scoring import Model, score_sequences, select_documents

_LONE = re.compile("[\ud800-\udfff]")


def without_surrogates(text: str) -> str:
    """The text as every part of KeyBlock reads it: a lone surrogate, which no encoding holds, is U+FFFD."""
    return _LONE.sub("\ufffd", text)


@dataclass(frozen=True, slots=True)
class CandidateList:
    """A query that has met its documents.

    Attributes:
        query: as it was prepared.
        candidates: the documents with their chosen blocks, in first-stage order.
        texts: theirs; "" for each where no span or context is asked for.
        first_stage: what the search before says of them.
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
    tokens: int | None = None,
) -> list[Candidate]:
    """Choose the blocks of each document; what is kept of it is small.

    Args:
        pipeline: says what chooses.
        model: is asked where it chooses, or is escalated to.
        query: the query.
        documents: in first-stage order.
        budget: tokens a sequence may have, as for `Pipeline.select`.
        tokens: for all of escalation's questions together, as for `keyblock.scoring.questions`.
    """
    selections = select_documents(pipeline, query, documents, model.choose, budget, tokens)
    return [candidate(*pair) for pair in zip(documents, selections, strict=True)]


def rank_lists(
    pipeline: Pipeline, model: Model, lists: Sequence[CandidateList], asked: Asked, budget: int, *, raw: bool = False
) -> Iterator[Answered]:
    """The answer to each list; the sequences of all of them go through the model together, in batches sorted by length.

    Documents that the pipeline's cascade spares are not among them.

    Args:
        pipeline: made the lists' candidates.
        model: scores.
        lists: in any order, which the answers have too.
        asked: beside the order.
        budget: tokens a sequence could have.
        raw: whether scores stay logits.
    """
    lists = [replace(one, candidates=_cascaded(pipeline, one, asked)) for one in lists]
    (logits, passages), marks = score_sequences(pipeline, [c.sequences for one in lists for c in one.candidates], model)
    n_documents, n_sequences = 0, 0
    for one in lists:
        of_documents = slice(n_documents, n_documents := n_documents + len(one.candidates))
        of_sequences = slice(n_sequences, n_sequences := n_sequences + sum(len(c.sequences) for c in one.candidates))
        order = _in_order(pipeline, one, logits[of_documents], passages[of_sequences], budget, raw=raw)
        own_marks = None if marks is None else marks[of_sequences]
        yield answered(pipeline, one.query, Documents(one.candidates, one.texts, own_marks), order, asked)


def _cascaded(pipeline: Pipeline, one: CandidateList, asked: Asked) -> Sequence[Candidate]:
    return without_spared(one.candidates, pipeline.config, asked.results(one.first_stage, pipeline.config))


def _in_order(
    pipeline: Pipeline,
    one: CandidateList,
    logits: NDArray[np.float32],
    passages: NDArray[np.float32],
    budget: int,
    *,
    raw: bool,
) -> Ranking:
    """All documents of a list in the order of the model, and of the first stage where that has a say."""
    config, decided = pipeline.config, None if pipeline.aggregator.joint else passages
    order = rank(one.candidates, logits, config.fusion, budget, raw=raw, passages=decided, activation=config.activation)
    return beside_first_stage(order, one.first_stage, config.first_stage)
