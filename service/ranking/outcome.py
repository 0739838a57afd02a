"""Turns a call's scores into its ranking, and into warnings of everything that was not done in full."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from keyblock.description import PipelineConfig
from keyblock.prepared import PreparedQuery
from keyblock.ranking.order import Candidate, Ranking, ScoredBy, rank, with_first_stage
from keyblock.ranking.warnings import about_empty, about_first_stage, about_languages, about_position, about_scripts, first_few
from service.call import Call
from service.engine.jobs import Scored
from service.ranking.plan import Plan
from service.telemetry.metrics import Metrics

LONGEST_SHOWN = 40  # characters of an id that a message repeats


class Chosen(NamedTuple):
    """A call's candidates with their chosen blocks.

    Attributes:
        candidates: in the order given.
        unscored_blocks: blocks that a learned selector had no time for.
    """

    candidates: list[Candidate]
    unscored_blocks: int = 0


class Outcome(NamedTuple):
    """The result of a call before its ranking.

    Attributes:
        plan: the plan of the call.
        chosen: its documents in the order given, with their blocks.
        scored: their logits.
        query: as it was prepared.
        estimated_tokens: estimate of the call's tokens with one sequence per document, made before the call was prepared.
    """

    plan: Plan
    chosen: Chosen
    scored: Scored
    query: PreparedQuery
    estimated_tokens: float


def ranked(call: Call, outcome: Outcome, config: PipelineConfig, metrics: Metrics) -> Ranking:
    """Order the documents, and warn of everything that was not done in full."""
    plan, candidates, scored = outcome.plan, outcome.chosen.candidates, outcome.scored
    passages = scored.passages
    ranking = rank(
        candidates,
        scored.logits,
        config.fusion,
        plan.budget if config.cosine_scale is None else 0,
        raw=call.raw_scores,
        passages=passages,
        activation=config.activation,
    )
    ranking = with_first_stage(ranking, call.first_stage, config.first_stage)
    call.warnings.extend(about_first_stage(call.first_stage, config, fused=bool(ranking.fused)))
    _count(candidates, ranking, metrics)
    unknown, away = call.documents.by_id.unknown, call.documents.by_id.away
    if unknown:
        call.warnings.append(f"unknown ids, ranked last: {ids_of(call, unknown)}")
    empty = [n for n, one in enumerate(candidates) if one.read and not one.has_blocks and n not in unknown | away]
    if empty:
        metrics.add("unscored", len(empty))
        call.warnings.extend(about_empty(empty))
    call.warnings.extend(about_position(ranking.selected_by, config))
    about = about_scripts(ranking.foreign, len(candidates), config, without_model=ranking.without_model)
    call.warnings.extend(about + about_languages(ranking.unknown, len(candidates), config))
    degraded = _warn(call, outcome, ranking, config.packing.kept_inside(call.max_tokens), metrics)
    return replace(ranking, degraded=degraded)


def _count(candidates: list[Candidate], ranking: Ranking, metrics: Metrics) -> None:
    scored = zip(candidates, ranking.scored_by, strict=True)
    metrics.add("documents", len(candidates))
    metrics.add("spared", ranking.spared)
    metrics.add("blocks", sum(candidate.considered for candidate in candidates), step="considered")
    for by, number in Counter(by for by in ranking.selected_by if by is not None).items():
        metrics.add("selected", number, by=by.value)
    metrics.add("blocks", sum(len(one.blocks) for one, by in scored if by is ScoredBy.MODEL), step="scored")


def _warn(call: Call, outcome: Outcome, ranking: Ranking, full_budget: int, metrics: Metrics) -> bool:
    """Warn of the losses by the deadline, the upstream and the store, and count them. Returns whether there were any.

    Args:
        call: gets the warnings.
        outcome: of the call.
        ranking: of the call.
        full_budget: tokens of a sequence without a deadline.
        metrics: counts the losses.
    """
    candidates, unscored_blocks = outcome.chosen
    n, problem = len(candidates), outcome.scored.problem
    unread = sum(not candidate.read for candidate in candidates)
    unscored = 0 if problem or ranking.without_model else _count_placed_by(outcome, ranking, ScoredBy.SELECTOR)
    not_scored = 0 if problem or ranking.without_model else _count_placed_by(outcome, ranking, ScoredBy.ORDER)
    costs = {
        "tokens": outcome.plan.budget < full_budget and f"{outcome.plan.budget} tokens a document instead of {full_budget}",
        "blocks": unscored_blocks
        and f"{unscored_blocks} blocks were not scored in time, so that others may have been chosen in their place",
        "selector": unscored
        and f"{unscored} of {n} documents are ordered by their blocks alone, after those that the model scored",
        "order": "; ".join(
            f"{count} of {n} documents {why} and stay in the order given, last"
            for count, why in ((unread, "were not read"), (not_scored, "were not scored, have no block that speaks for them"))
            if count
        ),
    }
    for how, cost in costs.items():
        if cost:
            call.warnings.append(f"deadline_ms: {cost}")
            metrics.add("degraded", how=how)
    if problem:
        not_scored = _count_placed_by(outcome, ranking, ScoredBy.SELECTOR, ScoredBy.ORDER)
        call.warnings.append(f"upstream: {problem}; {not_scored} of {n} documents are ordered by their blocks alone")
        metrics.add("degraded", how="upstream")
    if away := call.documents.by_id.away:
        call.warnings.append(f"store: a part of it does not answer; these ids are ranked last: {ids_of(call, away)}")
        metrics.add("degraded", how="store")
    return bool(problem or away) or any(costs.values())


def _count_placed_by(outcome: Outcome, ranking: Ranking, *by: ScoredBy) -> int:
    """The number of documents with sequences for the model whose place comes from one of these scores instead."""
    return sum(
        bool(one.sequences) and scored in by for one, scored in zip(outcome.chosen.candidates, ranking.scored_by, strict=True)
    )


def ids_of(call: Call, numbers: Iterable[int]) -> str:
    """The ids of documents that were sent as ids, as many as a message may list."""
    by_id = call.documents.by_id
    return first_few([repr(by_id.ids[number][:LONGEST_SHOWN]) for number in sorted(numbers)])
