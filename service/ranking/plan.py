"""Plans what a call with a deadline does in its time: fewer tokens per document first, then fewer documents.

The plan only saves useless work. Each step ends at its time whatever the plan says, with the results of that moment: documents that
the model has not scored are ordered by their blocks, and documents that were not even read keep the order given.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from keyblock.packing import PackingConfig
from keyblock.runtime.batching import LENGTHS

MOST_ANSWERING_SHARE = 0.3  # of the remaining time, which spans and contexts keep if they need so much
LEAST_MODEL_SHARE = 0.5  # of the remaining time, which preparation leaves to the model if that needs so much
CHARS_PER_TOKEN = 3  # fewer than in most languages: a plan that overestimates the work is late less often
RESPOND_SECONDS = 0.003  # to write a small answer; a large one takes about as long as its request took to read
MOST_CHOOSING_SHARE = 0.7  # of the remaining time, for the round of a learned selector
SLACK = 1.2  # factor on estimated times, since the machine does other work too


@dataclass(frozen=True, slots=True)
class Work:
    """The cost of a call, as far as it is known before the call is prepared.

    Attributes:
        chars: characters of each document.
        query_tokens: an upper bound of the query's tokens, specials included.
        prepare_pace: seconds of preparation per character.
        model_pace: seconds of the model per token.
        ahead: maps seconds of own work to the seconds of other calls' work that run before its end, since calls take turns.
        fed: measured tokens that calls feed, per token of one sequence per document; above 1 with passages or a learned selector.
        answering: seconds to find the spans and contexts that the call requests.
    """

    chars: Sequence[int]
    query_tokens: int
    prepare_pace: float
    model_pace: float
    ahead: Callable[[float], float]
    fed: float = 1.0
    answering: float = 0.0

    def tokens(self, budget: int) -> float:
        """Tokens of all documents, each with the query."""
        return self.fed * sum(min(budget, self.query_tokens + chars / CHARS_PER_TOKEN) for chars in self.chars)

    def own_seconds(self, budget: int) -> float:
        """Seconds of the model for this call alone."""
        return self.tokens(budget) * self.model_pace

    def model_seconds(self, budget: int) -> float:
        """Seconds until the model has scored this call, other calls' turns included."""
        own = self.own_seconds(budget)
        return self.ahead(own) + own


@dataclass(frozen=True, slots=True)
class Plan:
    """The deadlines of a call's steps, in seconds of the machine's clock; None for no deadline.

    Attributes:
        budget: tokens a sequence may have.
        prepared_by: documents that are not prepared by then are left out.
        scored_by: documents that are not scored by then are left without a logit.
        answered_by: results whose texts are not read again by then have no spans and no context.
    """

    budget: int
    prepared_by: float | None = None
    scored_by: float | None = None
    answered_by: float | None = None

    def chosen_by(self, own_tokens: float, next_tokens: float, now: float) -> float | None:
        """The deadline of a learned selector that starts now; its round has `own_tokens`, the next round `next_tokens`.

        The next round keeps a share of the time, since the chosen blocks have to be packed as well.
        """
        if self.scored_by is None:
            return None
        share = min(own_tokens / max(own_tokens + next_tokens, 1.0), MOST_CHOOSING_SHARE)
        return now + max(self.scored_by - now, 0.0) * share


def make_plan(budget: int, packing: PackingConfig, began: float, seconds: float, work: Work, now: float) -> Plan:
    """Fit a call into its time.

    Args:
        budget: tokens a sequence has if there is time.
        packing: gives the smallest number of tokens at which the bundle was measured.
        began: when the call's last byte arrived.
        seconds: the deadline, counted from `began`.
        work: the cost of the call.
        now: the time, on the clock of `began`.
    """
    parsing = now - began
    answered_by = began + seconds - min(RESPOND_SECONDS + parsing, seconds / 4)
    end = answered_by - min(SLACK * work.answering, max(answered_by - now, 0.0) * MOST_ANSWERING_SHARE)
    left = max(end - now, 0.0)
    smallest = packing.budget_range[0]
    preparing = min(work.prepare_pace * sum(work.chars), left * (1 - LEAST_MODEL_SHARE))
    fitting = [budget, *(length for length in reversed(LENGTHS) if smallest < length < budget), smallest]
    fitting_budgets = (tokens for tokens in fitting if SLACK * work.model_seconds(tokens) <= left - preparing)
    chosen = min(next(fitting_budgets, smallest), budget)
    prepared_by = end - min(SLACK * work.model_seconds(chosen), left * LEAST_MODEL_SHARE)
    return Plan(chosen, prepared_by, end, answered_by)
