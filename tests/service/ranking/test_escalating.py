"""How many tokens escalation may take, by bundle, service, request and deadline."""

import asyncio
from typing import Any

from keyblock.order import UNREAD
from service.ranking.escalating import Bound, bound, escalate
from service.ranking.plan import Plan

NOW = 50.0


def test_the_least_of_bundle_service_and_request() -> None:
    plan = Plan(128)
    assert bound((8000, None, None), plan, 128, 1.0, 0.001, NOW) == Bound(8000)
    assert bound((8000, 500, None), plan, 128, 1.0, 0.001, NOW) == Bound(500)
    assert bound((8000, 500, 100), plan, 128, 1.0, 0.001, NOW, budget=96) == Bound(100, budget=96)
    assert bound((8000, 500, 0), plan, 128, 1.0, 0.001, NOW).tokens == 0


def test_a_deadline_leaves_it_what_scoring_does_not_need() -> None:
    """Ten seconds, of which scoring takes five at most: some thousand tokens of a millisecond each are left."""
    plan = Plan(128, scored_by=NOW + 10)
    spare = bound((100_000, None, None), plan, 128, 4.0, 0.001, NOW)
    assert 2_000 < spare.tokens < 5_000
    assert spare.lowered
    assert spare.until is not None
    assert spare.until < plan.scored_by  # type: ignore[operator]
    assert not bound((100, None, None), plan, 128, 4.0, 0.001, NOW).lowered


def test_escalation_is_dropped_where_documents_get_fewer_tokens_or_scoring_needs_all_the_time() -> None:
    plan = Plan(96, scored_by=NOW + 10)
    assert bound((8000, None, None), plan, 128, 1.0, 0.001, NOW)[::3] == (0, True)
    assert bound((8000, None, None), Plan(128, scored_by=NOW + 1), 128, 4.0, 0.001, NOW)[::3] == (0, True)


def test_without_a_free_thread_in_time_the_model_is_not_asked_and_the_answer_says_so() -> None:
    class Busy:
        async def questions(self, *_: Any) -> None:
            raise TimeoutError

    parts: Any = Busy(), None
    doubts: Any = {0: None}
    query: Any = None
    chosen = asyncio.run(escalate(query, [UNREAD], doubts, parts, Plan(128, scored_by=NOW), Bound(100, NOW), 0))
    assert (chosen.candidates, chosen.late, chosen.escalated) == ([UNREAD], 1, (0, 0, 1))
