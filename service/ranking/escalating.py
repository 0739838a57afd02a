"""Escalation by doubt in a request: the model is asked which blocks matter, where there are tokens and time for it."""

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

SPARE_SHARE = 0.7  # of the seconds that scoring is going to leave: what is chosen has to be packed as well


class Bound(NamedTuple):
    """What escalation may take.

    Attributes:
        tokens: at most.
        until: as the machine's clock counts; none: as long as it takes.
        budget: tokens of a sequence that the request asked for; none: the bundle's.
        lowered: whether the deadline is why there are not more tokens.
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
        escalated: what escalation came to; None where the bundle does not escalate.
        late: documents that it had no time for.
    """

    candidates: list[Candidate]
    unasked: int = 0
    escalated: Escalated | None = None
    late: int = 0


def bound(
    tokens: Sequence[int | None],
    plan: Plan,
    usual_budget: int,
    then: float,
    pace: float,
    now: float,
    budget: int | None = None,
) -> Bound:
    """Fit escalation into a call's time: it is the first to go when that is short.

    Args:
        tokens: what bundle, service and request allow each; None for no bound.
        plan: the call's.
        usual_budget: tokens a sequence has without a deadline: with fewer, there is no time for more questions.
        then: seconds until the model has scored the candidates, others' turns included.
        pace: seconds that the model takes for a token.
        now: as the plan counts.
        budget: tokens of a sequence that the request asked for.
    """
    allowed = min(number for number in tokens if number is not None)
    if plan.scored_by is None:
        return Bound(allowed, budget=budget)
    spare = max(plan.scored_by - now - SLACK * then, 0.0) * SPARE_SHARE if plan.budget >= usual_budget else 0.0
    in_time = int(spare / (SLACK * pace)) if pace else allowed
    return Bound(min(allowed, in_time), now + spare, budget, lowered=in_time < allowed)


async def escalate(
    query: PreparedQuery,
    candidates: Sequence[Candidate],
    doubts: Doubts,
    parts: tuple[Preparer, Scorer],
    plan: Plan,
    most: Bound,
    priority: int,
) -> Chosen:
    """Ask the model about documents in doubt, and choose their blocks anew; what is not answered in time stays as it is.

    Args:
        query: the call's.
        candidates: as the selector has them.
        doubts: which of them are in doubt, by number.
        parts: of the model.
        plan: the call's.
        most: what this may take.
        priority: the call's.
    """
    preparer, scorer = parts
    numbers = sorted(doubts)
    if not numbers:
        return Chosen(list(candidates), escalated=Escalated(0, 0, 0))
    try:
        asked = await preparer.questions(query, [doubts[n] for n in numbers], most.tokens, most.budget, most.until)
    except TimeoutError:  # no thread was free in time
        return Chosen(list(candidates), escalated=Escalated(0, 0, len(numbers)), late=len(numbers))
    sequences = [packed for one in asked if one is not None for packed in one.shortlist.sequences]
    logits = (await scorer.choose(sequences, Turn(most.until, priority=priority))).logits
    anew = list(candidates)
    if (logits > -np.inf).any():
        for number, one in zip(numbers, await preparer.selected(query, asked, logits, most.budget, plan.scored_by), strict=True):
            anew[number] = one if one.selected_by is SelectedBy.MODEL else anew[number]
    fed = sum(len(packed.ids) for packed, logit in zip(sequences, logits.tolist(), strict=True) if logit > -np.inf)
    fed += sum(_tokens(anew[number]) - _tokens(candidates[number]) for number in numbers)
    answered = sum(anew[number] is not candidates[number] for number in numbers)
    left = len(numbers) - answered
    timed_out = len(sequences) > int((logits > -np.inf).sum())
    return Chosen(anew, escalated=Escalated(answered, fed, left), late=left if most.lowered or timed_out else 0)


def _tokens(one: Candidate) -> int:
    return sum(len(packed.ids) for packed in one.sequences)
