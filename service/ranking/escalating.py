"""Escalation by doubt in a request: the model scores which blocks matter, if there are tokens and time for it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from keyblock.escalation import Escalated
from keyblock.order import Candidate
from keyblock.prepared import PreparedQuery
from keyblock.selectors import SelectedBy
from service.engine.instance import Turn
from service.ranking.plan import SLACK, Plan
from service.ranking.preparation import Doubts, Preparer
from service.ranking.scorers import Scorer

SPARE_SHARE = 0.7  # of the seconds that scoring leaves: the chosen blocks have to be packed as well


class Bound(NamedTuple):
    """The limits of escalation.

    Attributes:
        tokens: at most.
        until: deadline, in seconds of the machine's clock; None: there is none.
        budget: tokens of a sequence that the request set; None: the bundle's.
        lowered: whether the deadline has lowered `tokens`.
    """

    tokens: int
    until: float | None = None
    budget: int | None = None
    lowered: bool = False


class Chosen(NamedTuple):
    """A call's candidates with their chosen blocks.

    Attributes:
        candidates: in the order given.
        unasked: blocks that a learned selector had no time for.
        escalated: the result of escalation; None if the bundle does not escalate.
        late: documents for which escalation had no time.
    """

    candidates: list[Candidate]
    unscored_blocks: int = 0
    escalated: Escalated | None = None
    late: int = 0


def bound(
    tokens: Sequence[int | None],
    plan: Plan,
    full_budget: int,
    scoring_seconds: float,
    pace: float,
    now: float,
    budget: int | None = None,
) -> Bound:
    """Fit escalation into a call's time: it is dropped first when time is short.

    Args:
        tokens: the limits of the bundle, the service and the request; None for no limit.
        plan: of the call.
        full_budget: tokens of a sequence without a deadline: a plan with fewer has no time for escalation.
        scoring_seconds: seconds until the model has scored the candidates, other requests' turns included.
        pace: seconds of the model per token.
        now: the time, on the clock of the plan.
        budget: tokens of a sequence that the request set.
    """
    allowed = min(number for number in tokens if number is not None)
    if plan.scored_by is None:
        return Bound(allowed, budget=budget)
    spare = max(plan.scored_by - now - SLACK * scoring_seconds, 0.0) * SPARE_SHARE if plan.budget >= full_budget else 0.0
    in_time = int(spare / (SLACK * pace)) if pace else allowed
    return Bound(min(allowed, in_time), now + spare, budget, lowered=in_time < allowed)


async def escalate(
    query: PreparedQuery,
    candidates: Sequence[Candidate],
    doubts: Doubts,
    parts: tuple[Preparer, Scorer],
    plan: Plan,
    allowance: Bound,
    priority: int,
) -> Chosen:
    """Let the model score the blocks of documents in doubt, and choose blocks anew; a document that is late keeps its blocks.

    Args:
        query: of the call.
        candidates: as the selector made them.
        doubts: those of them that are in doubt, by number.
        parts: the model's preparer and scorer.
        plan: of the call.
        allowance: the limits of escalation.
        priority: of the call.
    """
    preparer, scorer = parts
    numbers = sorted(doubts)
    if not numbers:
        return Chosen(list(candidates), escalated=Escalated(0, 0, 0))
    try:
        asked = await preparer.questions(query, [doubts[n] for n in numbers], allowance.tokens, allowance.budget, allowance.until)
    except TimeoutError:  # no thread was free in time
        return Chosen(list(candidates), escalated=Escalated(0, 0, len(numbers)), late=len(numbers))
    sequences = [packed for one in asked if one is not None for packed in one.shortlist.sequences]
    logits = (await scorer.choose(sequences, Turn(allowance.until, priority=priority))).logits
    updated = list(candidates)
    if (logits > -np.inf).any():
        for number, one in zip(
            numbers, await preparer.selected(query, asked, logits, allowance.budget, plan.scored_by), strict=True
        ):
            updated[number] = one if one.selected_by is SelectedBy.MODEL else updated[number]
    fed = sum(len(packed.ids) for packed, logit in zip(sequences, logits.tolist(), strict=True) if logit > -np.inf)
    fed += sum(_tokens(updated[number]) - _tokens(candidates[number]) for number in numbers)
    answered = sum(updated[number] is not candidates[number] for number in numbers)
    left = len(numbers) - answered
    timed_out = len(sequences) > int((logits > -np.inf).sum())
    return Chosen(updated, escalated=Escalated(answered, fed, left), late=left if allowance.lowered or timed_out else 0)


def _tokens(one: Candidate) -> int:
    return sum(len(packed.ids) for packed in one.sequences)
