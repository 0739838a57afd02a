"""What a call with a deadline does in the time that it has: fewer tokens a document first, then fewer documents.

The plan only saves useless work. Each step ends at its time whatever the plan says, with what is done by then:
documents that the model has not scored are ordered by their blocks, those that were not even read keep the order given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from keyblock.description import PackingConfig
from keyblock.runtime.batching import LENGTHS

LEAST_MODEL_SHARE = 0.5  # of the time left that preparation leaves to the model, if that needs so much
CHARS_PER_TOKEN = 3  # fewer than in most languages: a plan that overrates the work is late less often
RESPOND_SECONDS = 0.003  # to write a small answer; a large one takes about as long as its request took to read
MOST_CHOOSING_SHARE = 0.7  # of the time left, for a learned selector's round
SLACK = 1.2  # other work of this machine


@dataclass(frozen=True, slots=True)
class Work:
    """What a call is going to cost, as far as it is known before it is prepared.

    Attributes:
        chars: of each document.
        query_tokens: of the query at most, specials included.
        prepare_pace: seconds a character takes to prepare.
        model_pace: seconds a token takes in the model.
        ahead: seconds of other calls' work that are run before so many of these: turns are taken.
        fed: tokens that calls feed for each one of a sequence a document, as measured: with passages or learned selection more.
    """

    chars: Sequence[int]
    query_tokens: int
    prepare_pace: float
    model_pace: float
    ahead: Callable[[float], float]
    fed: float = 1.0

    def tokens(self, budget: int) -> float:
        """Of all documents, each with the query."""
        return self.fed * sum(min(budget, self.query_tokens + chars / CHARS_PER_TOKEN) for chars in self.chars)

    def own_seconds(self, budget: int) -> float:
        """The model's, for them alone."""
        return self.tokens(budget) * self.model_pace

    def model_seconds(self, budget: int) -> float:
        """Until the model has scored them, others' turns included."""
        own = self.own_seconds(budget)
        return self.ahead(own) + own


@dataclass(frozen=True, slots=True)
class Plan:
    """When what has to be done; times as the machine's clock counts, None for no end.

    Attributes:
        budget: tokens a sequence may have.
        prepared_by: what is not prepared by then is left out.
        scored_by: the same of the model.
    """

    budget: int
    prepared_by: float | None = None
    scored_by: float | None = None

    def chosen_by(self, asked: float, then: float, now: float) -> float | None:
        """When a learned selector has to be done, which begins now; its round has `asked` tokens and the next one `then`.

        The next round keeps a share of the time, for what is chosen has to be packed as well.
        """
        if self.scored_by is None:
            return None
        share = min(asked / max(asked + then, 1.0), MOST_CHOOSING_SHARE)
        return now + max(self.scored_by - now, 0.0) * share


def make_plan(budget: int, packing: PackingConfig, began: float, seconds: float, work: Work, now: float) -> Plan:
    """Fit a call into its time.

    Args:
        budget: tokens a sequence has if there is time.
        packing: says how few tokens the bundle was measured at.
        began: when the call's last byte was there.
        seconds: the deadline, from then on.
        work: what is to be done.
        now: as `began` counts.
    """
    parsing = now - began
    end = began + seconds - min(RESPOND_SECONDS + parsing, seconds / 4)
    left = max(end - now, 0.0)
    least = packing.budget_range[0]
    preparing = min(work.prepare_pace * sum(work.chars), left * (1 - LEAST_MODEL_SHARE))
    fitting = [budget, *(length for length in reversed(LENGTHS) if least < length < budget), least]
    fits = (tokens for tokens in fitting if SLACK * work.model_seconds(tokens) <= left - preparing)
    chosen = min(next(fits, least), budget)
    prepared_by = end - min(SLACK * work.model_seconds(chosen), left * LEAST_MODEL_SHARE)
    return Plan(chosen, prepared_by, end)
