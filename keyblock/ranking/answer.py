"""The answer to a request: its order, and the spans, contexts, cut and warnings that come with it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from keyblock.description import PipelineConfig
from keyblock.fusion import sigmoid
from keyblock.pipeline import Pipeline
from keyblock.prepared import PreparedQuery
from keyblock.ranking.diversity import by_marginal_relevance
from keyblock.ranking.order import NOTHING_LOOKED, Block, Candidate, Looked, Ranking, ScoredBy, rank, with_first_stage
from keyblock.ranking.pruning import Late, Pruner, Steps, never
from keyblock.ranking.request import AnswerOptions, RankRequest
from keyblock.ranking.spans import Marked, Span, scored_sentences, spans
from keyblock.ranking.warnings import (
    NOTHING_MISSING,
    Missing,
    about_budget,
    about_empty,
    about_first_stage,
    about_instruction,
    about_languages,
    about_letters,
    about_position,
    about_query,
    about_scripts,
    about_skipped,
    about_unknown,
    named,
)
from keyblock.results import Context, ContextSize

AUTO = "auto"

T = TypeVar("T")


class Scores(NamedTuple):
    """The model's scores of a request's candidates.

    Attributes:
        logits: shape (n_documents,), -inf for a document that is not scored.
        passages: shape (n_sequences,), see `keyblock.aggregation.Aggregated`; None if nothing gives them.
        marks: for each sequence the logits of its tokens, shape (length,); None if tokens are not marked.
        problem: why sequences were not scored, other than for lack of time; empty if nothing went wrong.
    """

    logits: NDArray[np.float32]
    passages: NDArray[np.float32] | None = None
    marks: Sequence[NDArray[np.float32]] | None = None
    problem: str = ""


class Outcome(NamedTuple):
    """What is known of a request once its documents are scored.

    Attributes:
        query: as it was prepared.
        candidates: the documents with their blocks, in the order given.
        scores: their scores.
        budget: tokens that a sequence could have.
        missing: documents that the store has not given.
        unscored_blocks: blocks that the model had no time to score for a learned selector.
        scored_by_texts: see `keyblock.ranking.flow.ranking`.
        looked: what a second look found.
    """

    query: PreparedQuery
    candidates: Sequence[Candidate]
    scores: Scores
    budget: int
    missing: Missing = NOTHING_MISSING
    unscored_blocks: int = 0
    scored_by_texts: bool = False
    looked: Looked = NOTHING_LOOKED

    def marks_by_document(self) -> list[Sequence[NDArray[np.float32]] | None]:
        """For each document the marks of its sequences; None for a model without a marker."""
        if self.scores.marks is None:
            return [None] * len(self.candidates)
        ends = np.cumsum([len(one.sequences) for one in self.candidates]).tolist()
        return [self.scores.marks[end - len(one.sequences) : end] for end, one in zip(ends, self.candidates, strict=True)]

    @property
    def further(self) -> dict[int, Marked]:
        """What a second look read, by document number; empty for a model without a marker.

        A block that is read alone marks too much (lab/notes/second-look.md): its marks are lowered by as much as its logit is below
        that of the first look.
        """
        found, looked = dict[int, Marked](), self.looked
        for number, sequences, logits, marks in zip(
            looked.documents, looked.sequences, looked.logits, looked.marks or (), strict=False
        ):
            below = np.maximum(self.scores.logits[number] - logits, 0)
            found[number] = Marked(sequences, [mark - gap for mark, gap in zip(marks, below, strict=False)])
        return found


class Refused(NamedTuple):
    """What a `min_score` left out.

    Attributes:
        least: the score that a result has to reach, a probability.
        left_out: how many documents do not reach it, not counting those that the pre-ranking skipped.
        best: the best score among them; none if there are none.
    """

    least: float
    left_out: int
    best: float | None


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer.

    Attributes:
        ranking: the ranking, cut to the results that reach `min_score`.
        spans: each result's spans, best first, by document number.
        contexts: each result's context, by document number; empty unless the call asked for pruning.
        saved: what pruning saved; none without pruning.
        refused: what a least score left out; none without one.
        unread: how many results have no spans and no context, since time was up.
        warnings: requests that were not honoured, and work that could not be done.
        losses: what was not done in full for lack of time or because something does not answer, by the kind of loss.
        outcome: what the answer is made of; none for an answer without one.
    """

    ranking: Ranking
    spans: dict[int, list[Span]] = field(default_factory=dict)
    contexts: dict[int, Context] = field(default_factory=dict)
    saved: ContextSize | None = None
    refused: Refused | None = None
    unread: int = 0
    warnings: list[str] = field(default_factory=list)
    losses: dict[str, str] = field(default_factory=dict)
    outcome: Outcome | None = None


def answer(request: RankRequest, pipeline: Pipeline, outcome: Outcome, late: Late = never) -> Steps[Answered]:
    """Order the documents, add what the request asks for, and warn of everything that was not done in full.

    Once it is late, no more texts are read: the best results have spans and contexts, and the others have none.
    """
    config, scores = pipeline.config, outcome.scores
    ranking = rank(
        outcome.candidates,
        scores.logits,
        config.fusion,
        outcome.budget if config.cosine_scale is None else 0,
        near=config.near_tokens,
        passages=None if pipeline.aggregator.joint else scores.passages,
        activation=None if request.raw_scores else config.activation,
        looked=outcome.looked,
    )
    ranking = with_first_stage(ranking, request.first_stage, config.first_stage)
    found = yield from answered(pipeline, outcome, request.documents.texts, ranking, request.asked, late)
    losses = _losses(request, config, outcome, ranking)
    if found.unread:
        unread = f"{found.unread} of {len(found.ranking.order)} results were not searched for spans in time"
        losses["spans"] = f"deadline_ms: {unread}"
    warnings = [
        *_about_request(request, pipeline, outcome),
        *_about_order(request, config, outcome, ranking),
        *about_skipped(sum(outcome.candidates[number].skipped for number in found.ranking.order), len(found.ranking.order)),
        *losses.values(),
    ]
    return replace(
        found,
        ranking=replace(found.ranking, degraded=bool(losses)),
        warnings=warnings + found.warnings,
        losses=losses,
        outcome=outcome,
    )


def finished(steps: Steps[T]) -> T:
    """The result of work that is done in one go."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result


def _about_request(request: RankRequest, pipeline: Pipeline, outcome: Outcome) -> list[str]:
    """Warnings about what the bundle does not honour, or the model does not read."""
    return [
        *about_budget(request.max_tokens, pipeline.config.packing),
        *([] if outcome.scored_by_texts else about_instruction(request.instruction, pipeline.tokenizer)),
        *([] if outcome.scored_by_texts else about_query(outcome.query)),
    ]


def _about_order(request: RankRequest, config: PipelineConfig, outcome: Outcome, ranking: Ranking) -> list[str]:
    """Warnings from the documents: why the order may not be reliable."""
    n = len(outcome.candidates)
    return [
        *about_first_stage(request.first_stage, config, fused=bool(ranking.fused)),
        *about_unknown(outcome.missing.unknown, request.documents.stored_ids),
        *about_empty([request.number(place) for place in empty_documents(outcome)]),
        *about_letters(
            (request.number(number), request.documents.texts[number][start:end])
            for number, one in enumerate(outcome.candidates)
            if one.sequences
            for start, end, _ in one.blocks
        ),
        *about_position(ranking.selected_by, _best(config, ranking), config, words=bool(len(outcome.query.terms))),
        *about_scripts(ranking.foreign, n, config, without_model=ranking.without_model),
        *about_languages(ranking.unknown, n, config),
    ]


def empty_documents(outcome: Outcome) -> list[int]:
    """The numbers of the documents that were read and have no text to score."""
    absent = {*outcome.missing.unknown, *outcome.missing.away}
    candidates = enumerate(outcome.candidates)
    return [number for number, one in candidates if one.read and not one.has_blocks and number not in absent]


def _losses(request: RankRequest, config: PipelineConfig, outcome: Outcome, ranking: Ranking) -> dict[str, str]:
    """What the deadline, the upstream and the store cost, in words, by kind."""
    n, problem, full = len(outcome.candidates), outcome.scores.problem, config.packing.kept_inside(request.max_tokens)
    lost: dict[str, str] = {}
    if outcome.budget < full:
        lost["tokens"] = f"deadline_ms: {outcome.budget} tokens a document instead of {full}"
    if blocks := outcome.unscored_blocks:
        lost["blocks"] = f"deadline_ms: {blocks} blocks were not scored in time, so that others may have been chosen in their place"
    in_time = bool(problem) or ranking.without_model
    if unscored := 0 if in_time else _placed_by(outcome, ranking, ScoredBy.SELECTOR):
        by_blocks = f"{unscored} of {n} documents are ordered by their blocks alone, after those that the model scored"
        lost["selector"] = f"deadline_ms: {by_blocks}"
    unread = sum(not one.read for one in outcome.candidates)
    unplaced = 0 if in_time else _placed_by(outcome, ranking, ScoredBy.ORDER)
    reasons = (unread, "were not read"), (unplaced, "were not scored, have no block that speaks for them")
    if kept := [f"{count} of {n} documents {why} and stay in the order given, last" for count, why in reasons if count]:
        lost["order"] = f"deadline_ms: {'; '.join(kept)}"
    if problem:
        not_scored = _placed_by(outcome, ranking, ScoredBy.SELECTOR, ScoredBy.ORDER)
        lost["upstream"] = f"upstream: {problem}; {not_scored} of {n} documents are ordered by their blocks alone"
    if away := outcome.missing.away:
        lost["store"] = (
            f"store: a part of it does not answer; these ids are ranked last: {named(away, request.documents.stored_ids)}"
        )
    return lost


def _placed_by(outcome: Outcome, ranking: Ranking, *by: ScoredBy) -> int:
    """The number of documents with sequences for the model whose place comes from one of these instead."""
    pairs = zip(outcome.candidates, ranking.scored_by, strict=True)
    return sum(bool(one.sequences) and scored_by in by for one, scored_by in pairs)


def answered(
    pipeline: Pipeline,
    outcome: Outcome,
    texts: Sequence[str],
    ranking: Ranking,
    options: AnswerOptions,
    late: Late = never,
) -> Steps[Answered]:
    """Add to a ranking of all documents what the call requests in addition to the order, and cut it to `AnswerOptions.top_n`.

    Once it is `late`, the texts of the remaining results are not read.
    """
    candidates, warnings = outcome.candidates, list[str]()
    if options.tokens is not None and not options.prune:
        warnings.append("max_context_tokens: bounds the contexts that prune gives, which was not asked for")
    order, refused = _reaching(pipeline, outcome, ranking, options, warnings)
    order = (yield from _diverse(pipeline, candidates, ranking, order, options, late, warnings))[: options.top_n or None]
    kept = replace(ranking, order=order)
    if not options.reads_texts:
        return Answered(kept, refused=refused, warnings=warnings)
    found: dict[int, list[Span]] = {}
    best: dict[int, list[Span]] = {}  # what answers, and where nothing reaches the threshold, the best sentence
    marks, further = outcome.marks_by_document(), outcome.further
    for number in order:
        yield
        if late():
            break
        text = texts[number]
        found[number] = best[number] = []
        if text:
            about = candidates[number], ranking, number, text, marks[number], further.get(number)
            scored = scored_sentences(pipeline, outcome.query, *about)
            reaching = spans(text, scored, options.threshold)
            found[number] = reaching[: options.most]
            best[number] = reaching or spans(text, scored, 0.0)[:1]
    unread = len(order) - len(found)
    contexts: dict[int, Context] = {}
    saved = None
    if options.prune:
        reader = pipeline.reader
        pruner = Pruner(texts, reader.count, options.tokens, late, lambda text: reader.readable([text])[0])
        contexts = yield from pruner.prune(best)
        if pruner.stopped:
            unread += sum(bool(of) and number not in contexts for number, of in best.items())
        whole = sum(candidates[number].tokens for number in order)
        left = sum(context.tokens for context in contexts.values())
        saved = ContextSize(left, whole, whole - left, pruner.copies)
    return Answered(kept, found if options.spans else {}, contexts, saved, refused, unread, warnings)


def _probable(config: PipelineConfig, ranking: Ranking) -> NDArray[np.float64]:
    """The score of each document as a probability, whatever the request and the bundle make of it."""
    return sigmoid(config.activation.scale * ranking.logits)


def _best(config: PipelineConfig, ranking: Ranking) -> float:
    """The best of the model's own scores, as a probability; 0 if it has scored nothing."""
    by_model = [by is ScoredBy.MODEL for by in ranking.scored_by]
    return float(_probable(config, ranking)[by_model].max(initial=0.0))


def _reaching(
    pipeline: Pipeline, outcome: Outcome, ranking: Ranking, options: AnswerOptions, warnings: list[str]
) -> tuple[list[int], Refused | None]:
    """The results that reach the score, and what does not; None without a bound.

    Only documents that the model scored are judged. A document that it could not score stays, since nothing is known of it, unless
    the document has no text; so does one on a part of the store that does not answer. Documents that the pre-ranking skipped are
    no results, since the judged ones promise more; the count leaves them out too.
    """
    least = pipeline.config.min_score if options.min_score == AUTO else options.min_score
    if least is None and options.min_score == AUTO:
        warnings.append("min_score: this model's bundle recommends no threshold, so nothing is left out; give a number")
    if least is None or isinstance(least, str):
        return ranking.order, None
    probable, away = _probable(pipeline.config, ranking), outcome.missing.away
    order = [
        number
        for number in ranking.order
        if (
            probable[number] >= least
            if ranking.scored_by[number] is ScoredBy.MODEL
            else bool(outcome.candidates[number].sequences) or not outcome.candidates[number].read or number in away
        )
    ]
    reaching = set(order)
    below = [
        float(probable[number])
        for number in ranking.order
        if number not in reaching and ranking.scored_by[number] is ScoredBy.MODEL
    ]
    return order, Refused(float(least), len(ranking.order) - len(order) - ranking.skipped, max(below, default=None))


def _diverse(
    pipeline: Pipeline,
    candidates: Sequence[Candidate],
    ranking: Ranking,
    order: list[int],
    options: AnswerOptions,
    late: Late,
    warnings: list[str],
) -> Steps[list[int]]:
    """The order, that of the documents that the model has scored by maximal marginal relevance, if the call asks for it.

    Documents are compared by the vectors of their best blocks. The scores stay as they are.
    """
    scored = [number for number in order if ranking.scored_by[number] is ScoredBy.MODEL]
    if not options.diversity or len(scored) < 2:
        return order
    vectors = [_best_vector(candidates[number], ranking.blocks[number]) for number in scored]
    if ranking.fused:
        warnings.append("diversity: left out, since a fusion with the first stage orders the results")
        return order
    if any(one is None for one in vectors):
        warnings.append("diversity: left out, since this model's bundle has no vectors of blocks to compare")
        return order
    relevance = _probable(pipeline.config, ranking)[scored]
    wanted = min(options.top_n or len(scored), len(scored))
    places = yield from by_marginal_relevance(relevance, np.asarray(vectors), options.diversity, late, wanted)
    if len(places) < wanted:
        warnings.append(f"diversity: time was up after {len(places)} of {wanted} results; the others are ordered by their scores")
    first = dict.fromkeys(scored[place] for place in places)
    return [*first, *(number for number in order if number not in first)]


def _best_vector(candidate: Candidate, blocks: Sequence[Block]) -> NDArray[np.int8] | None:
    """The vector of the first of the blocks, best first, that has one: those of a second look have none."""
    if candidate.vectors is None:
        return None
    places = {(block.start, block.end): place for place, block in enumerate(candidate.blocks)}
    return np.asarray(candidate.vectors[next(places[one[:2]] for one in blocks if one[:2] in places)])
