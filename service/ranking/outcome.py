"""What a call comes to once its documents are scored, and what the metrics count of its answer."""

from collections import Counter
from typing import NamedTuple

from keyblock.ranking.answer import Answered, empty_documents
from keyblock.ranking.answer import Outcome as Known
from keyblock.ranking.flow import Answer
from keyblock.ranking.order import ScoredBy
from service.telemetry.metrics import Metrics


class Outcome(NamedTuple):
    """A call whose documents are scored.

    Attributes:
        step: the last step of the flow, which makes the answer.
        estimated_tokens: estimate of the call's tokens with one sequence per document, made before the call was prepared.
        answered_by: when the answer must be made, on the machine's clock; None: no deadline.
    """

    step: Answer
    estimated_tokens: float
    answered_by: float | None = None


def count(answered: Answered, outcome: Known, metrics: Metrics) -> None:
    """Count what an answer holds, and what was not done in full; it is made of `outcome`."""
    ranking = answered.ranking
    scored = zip(outcome.candidates, ranking.scored_by, strict=True)
    metrics.add("documents", len(outcome.candidates))
    metrics.add("skipped", ranking.skipped)
    metrics.add("blocks", sum(candidate.considered for candidate in outcome.candidates), step="considered")
    for by, number in Counter(by for by in ranking.selected_by if by is not None).items():
        metrics.add("selected", number, by=by.value)
    metrics.add("blocks", sum(len(one.blocks) for one, by in scored if by is ScoredBy.MODEL), step="scored")
    if empty := empty_documents(outcome):
        metrics.add("unscored", len(empty))
    for how in answered.losses:
        metrics.add("degraded", how=how)
    metrics.add("spans", sum(map(len, answered.spans.values())))
    metrics.add("below", answered.refused.left_out if answered.refused else 0)
    metrics.add("emptied", bool(answered.refused and answered.refused.left_out and not ranking.order))
    if answered.saved is not None:
        metrics.add("context_tokens", answered.saved.tokens, of="contexts")
        metrics.add("context_tokens", answered.saved.of_documents, of="documents")
