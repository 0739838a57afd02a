"""A ranking, from the request to the answer, on one page: the same for the library, bulk, evaluation and the service.

It is a generator without thread and clock. It yields what it needs, and whoever drives it sends the outcome: `keyblock.scoring`
drives one or many in this process, the service one for each request, with its deadline, its turn at the model and its store.
"""

from collections.abc import Callable, Generator, Sequence
from functools import partial
from itertools import pairwise, takewhile
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from keyblock.fusion import SecondLook
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline, Selection, Shortlist
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.ranking.answer import Answered, Outcome, Scores, answer
from keyblock.ranking.order import (
    GROUPS,
    NOTHING_LOOKED,
    UNREAD,
    Candidate,
    Looked,
    ScoredBy,
    candidate,
    first_to_read,
    judge,
    without_skipped,
)
from keyblock.ranking.pruning import Late, Steps
from keyblock.ranking.request import RankRequest
from keyblock.ranking.warnings import NOTHING_MISSING, Missing

T = TypeVar("T")
Keep = Callable[[PreparedDocument, Selection], T]
"""Makes of a document and its selection what is kept of them."""


class Fetch(NamedTuple):
    """Read the documents that are sent as an id alone from the store. The outcome is what is `Missing`."""


class Prepare(NamedTuple):
    """Prepare the query. The outcome is a PreparedQuery.

    Attributes:
        do: prepares it.
    """

    do: Callable[[], PreparedQuery]


class Read(NamedTuple):
    """Prepare each document, and choose blocks of it. The outcome is a list, None for a document for which time was too short.

    Attributes:
        choose: maps prepared documents, any number of them, to what is kept of each.
    """

    choose: Callable[[Sequence[PreparedDocument]], list[Any]]


class Choose(NamedTuple):
    """Let the model score single blocks. The outcome is logits of shape (n_sequences,), -inf for those not scored in time.

    Attributes:
        sequences: the query with a block each.
        tokens_to_score: that the model reads at most afterwards, to score.
    """

    sequences: list[Packed]
    tokens_to_score: int


class Pack(NamedTuple):
    """Choose blocks by the model's scores. The outcome is as for `Read`.

    Attributes:
        tokens: of each document.
        choose: maps numbers of documents, from 0, to what is kept of each.
    """

    tokens: list[int]
    choose: Callable[[Sequence[int]], list[Any]]


class Score(NamedTuple):
    """Let the model score the candidates. The outcome is `Scores`, with -inf for those not scored in time.

    Attributes:
        candidates: in the order given.
        order: gives the numbers of the candidates, the most urgent first.
        marks: whether to mark the tokens that answer, if the model can.
        further: whether this is the second look.
    """

    candidates: Sequence[Candidate]
    order: Callable[[], list[int]]
    marks: bool
    further: bool = False


class Answer(NamedTuple):
    """Make the answer, which reads the documents' texts if spans are asked for. The outcome is `Answered`; nothing follows.

    Attributes:
        steps: makes it, in steps of bounded length, of as many results as are read before it is late.
        outcome: what it is made of.
    """

    steps: Callable[[Late], Steps[Answered]]
    outcome: Outcome


Step = Fetch | Prepare | Read | Choose | Pack | Score | Answer
Flow = Generator[Step, Any, T]


def ranking(
    request: RankRequest, pipeline: Pipeline, budget: int | None = None, *, scored_by_texts: bool = False
) -> Flow[Answered]:
    """Rank the documents of a request.

    Args:
        request: the query, its documents and what is asked of them.
        pipeline: the bundle's.
        budget: tokens a sequence may have, fewer than requested if time is short; none: as requested.
        scored_by_texts: whether what scores reads texts, so that it gets the whole query whatever the tokenizer keeps.
    """
    config = pipeline.config
    full = config.packing.kept_inside(request.max_tokens)
    budget = full if budget is None else budget
    missing: Missing = (yield Fetch()) if request.documents.stored_ids else NOTHING_MISSING
    query = yield from _query(request, pipeline)
    look = None if scored_by_texts or not request.second_look else config.second_look
    dimensions = pipeline.encoder.dimensions if request.asked.diversity and pipeline.encoder else 0
    keep = partial(candidate, further=look.blocks if look else 0, dimensions=dimensions)
    chosen = yield from choosing(pipeline, query, budget, keep)
    candidates = [UNREAD if one is None else one for one in chosen.documents]
    candidates = without_skipped(candidates, config, request.asked.results(request.first_stage, config))
    order = partial(first_to_read, candidates, config)
    scores: Scores = yield Score(candidates, order, request.asked.reads_texts)
    looked = NOTHING_LOOKED if look is None else (yield from _looking(look, request, pipeline, candidates, scores, budget))
    outcome = Outcome(query, candidates, scores, budget, missing, chosen.unscored_blocks, scored_by_texts, looked)
    answered: Answered = yield Answer(partial(answer, request, pipeline, outcome), outcome)
    return answered


def _query(request: RankRequest, pipeline: Pipeline) -> Flow[PreparedQuery]:
    if isinstance(request.query, PreparedQuery):
        return request.query
    query: PreparedQuery = yield Prepare(partial(pipeline.prepare_query, request.query, request.instruction))
    return query


def _looking(
    look: SecondLook, request: RankRequest, pipeline: Pipeline, candidates: Sequence[Candidate], scores: Scores, budget: int
) -> Flow[Looked]:
    """Read on in the documents with the best scores, each of whose further blocks is a candidate of its own."""
    after, config = len(pipeline.tokenizer.template.after), pipeline.config
    judged = judge(candidates, scores.logits, config.fusion, config.near_tokens)
    scored = judged.order[judged.group[judged.order] == GROUPS.index(ScoredBy.MODEL)]
    best = look.chosen(scored, judged.worth).tolist()
    sequences = [candidates[number].further_sequences(after, budget) for number in best]
    alone = [
        Candidate([packed], candidates[number].evidence, []) for number, of in zip(best, sequences, strict=True) for packed in of
    ]
    found: Scores = (
        (yield Score(alone, partial(list, range(len(alone))), request.asked.reads_texts, further=True)) if alone else scores
    )
    ends = np.cumsum([0, *map(len, sequences)]).tolist()
    parts = [slice(*pair) for pair in pairwise(ends)]
    logits = [found.logits[part] if of else scores.logits[[n]] for n, of, part in zip(best, sequences, parts, strict=True)]
    kept = list(takewhile(lambda place: logits[place].max() > -np.inf, range(len(logits))))  # time may have been up
    fused = look.fuse(judged.worth[[best[k] for k in kept]], np.asarray([logits[k].max() for k in kept], np.float64))
    marks = None if found.marks is None or not alone else [found.marks[parts[k]] for k in kept]
    return Looked([best[k] for k in kept], fused.tolist(), [logits[k] for k in kept], [sequences[k] for k in kept], marks, judged)


def choosing(pipeline: Pipeline, query: PreparedQuery, budget: int | None, keep: Keep[T]) -> "Flow[Chosen[T]]":
    """Choose the blocks of each document; a learned selector lets the model score its shortlists in between.

    Args:
        pipeline: its selector chooses.
        query: the query.
        budget: tokens a sequence may have, as for `Pipeline.select`.
        keep: makes what is kept of a document and its selection.
    """
    if not pipeline.asks_model:
        found: list[T | None] = yield Read(partial(_selected, pipeline, query, budget, keep))
        return Chosen(found, 0)
    shortlisted: list[Shortlisted | None] = yield Read(partial(_shortlisted, pipeline, query, budget))
    read = [one for one in shortlisted if one is not None]
    sequences = [packed for one in read for packed in one.shortlist.sequences]
    allowed = pipeline.config.packing.budget if budget is None else budget
    logits: NDArray[np.float32] = yield Choose(sequences, allowed * len(shortlisted))
    parts = np.split(logits, np.cumsum([len(one.shortlist.sequences) for one in read])[:-1])

    def choose(numbers: Sequence[int]) -> list[T]:
        pairs = [(read[n].document, (read[n].shortlist, parts[n])) for n in numbers]
        return [keep(document, pipeline.select(query, document, budget, scored)) for document, scored in pairs]

    packed = iter((yield Pack([len(one.document.token_ids) for one in read], choose)))
    return Chosen([None if one is None else next(packed) for one in shortlisted], int(np.isneginf(logits).sum()))


def _selected(
    pipeline: Pipeline, query: PreparedQuery, budget: int | None, keep: Keep[T], documents: Sequence[PreparedDocument]
) -> list[T]:
    return [keep(*pair) for pair in zip(documents, pipeline.select_each(query, documents, budget), strict=True)]


def _shortlisted(
    pipeline: Pipeline, query: PreparedQuery, budget: int | None, documents: Sequence[PreparedDocument]
) -> "list[Shortlisted]":
    return [Shortlisted(one, pipeline.shortlist(query, one, budget)) for one in documents]


class Chosen(NamedTuple, Generic[T]):
    """The documents with their chosen blocks.

    Attributes:
        documents: what is kept of each; None for a document for which time was too short.
        unscored_blocks: blocks that the model had no time to score for a learned selector.
    """

    documents: list[T | None]
    unscored_blocks: int


class Shortlisted(NamedTuple):
    """A document between the two rounds of a learned selector."""

    document: PreparedDocument
    shortlist: Shortlist
