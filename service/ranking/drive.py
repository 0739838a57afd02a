"""Drives the ranking flow for one call: its steps wait for the store, threads and the model, as long as its deadline allows.

Documents that were sent as an id alone are read from the store, and written back if they were prepared again.

A call with a deadline is fitted into its time by a plan: fewer tokens per document first, then fewer documents. The plan only saves
useless work. Each step ends at its time whatever the plan says, with the results of that moment: documents that the model has not
scored are ordered by their blocks, and documents that were not even read keep the order given.
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from keyblock.bundle import Bundle
from keyblock.packing import PackingConfig
from keyblock.ranking.answer import Scores
from keyblock.ranking.flow import Answer, Choose, Fetch, Flow, Pack, Prepare, Read, Score, Step, ranking
from keyblock.ranking.warnings import Missing, named
from keyblock.runtime.batching import LENGTHS
from service.call import Call, Documents, Queries
from service.errors import RequestError
from service.queue.graphs import Priority, Scorer
from service.ranking.admission import Place
from service.ranking.preparation import Preparer
from service.store.base import AWAY
from service.store.codec import Found, StoredDocument
from service.store.library import AWAY_PROBLEM, AWAY_SECONDS, Library
from service.telemetry.account import Stages
from service.telemetry.metrics import Metrics

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


class Admitted(NamedTuple):
    """The calls of a request, for which there is room.

    Attributes:
        plan: of all of them.
        work: of all of them.
        place: what they hold of the service's room.
        pairs: how many documents they have together.
        turns: in which they prepare and are scored: many calls of one request hold up others as two requests do.
        library: the store, if documents are by id.
    """

    plan: Plan
    work: Work
    place: Place
    pairs: int
    turns: asyncio.Semaphore
    library: Library | None


class Parts(Protocol):
    """The parts of a model that a drive uses, see `service.ranking.model.Model`."""

    bundle: Bundle
    fingerprint: bytes
    metrics: Metrics
    preparer: Preparer
    scorer: Scorer


class Drive:
    """One call on its way.

    Args:
        model: ranks the call.
        call: the request.
        admitted: the call, and others of the same request.
        stages: times the steps.
    """

    def __init__(self, model: Parts, call: Call, admitted: Admitted, stages: Stages) -> None:
        self._model, self._call, self._stages = model, call, stages
        self._plan, self._place, self._turns, self._library = admitted.plan, admitted.place, admitted.turns, admitted.library
        self._share = len(call.documents) / max(admitted.pairs, 1)  # of the place's work
        self._stale: dict[str, StoredDocument] = {}

    async def run(self) -> Answer:
        """Perform all steps but the last, which makes the answer. Cancelling it drops the work that has not begun.

        Raises RequestError if stored documents cannot be had, ModelError and ModelDeadError.
        """
        pipeline, outcome = self._model.bundle.pipeline, None
        flow: Flow[Any] = ranking(self._call, pipeline, self._plan.budget, scored_by_texts=self._model.scorer.reads_texts)
        try:
            while not isinstance(step := flow.send(outcome), Answer):
                outcome = await self._performed(step)
        finally:
            self._queued()
        return step

    def _queued(self) -> None:
        """The model has the call's work, or will not get it."""
        self._place.queued(self._share)
        self._share = 0.0

    async def _performed(self, step: Step) -> Any:
        preparer, plan = self._model.preparer, self._plan
        match step:
            case Fetch() if self._library is not None:
                return await self._fetched(self._library)
            case Prepare():
                async with self._turns:
                    return await preparer.query(step.do)
            case Read():
                async with self._turns:
                    found = await preparer.read(self._call.documents, step.choose, plan.prepared_by)
                self._stages.end("prepare")
                return found
            case Choose():
                async with self._turns:
                    return await self._chosen(step)
            case Pack():
                async with self._turns:
                    packed = await preparer.pack(step.tokens, step.choose, plan.scored_by)
                self._stages.end("select")
                return packed
            case Score():
                async with self._turns:
                    return await self._scored(step)
        raise TypeError(f"a call has no step {type(step).__name__}")

    async def _fetched(self, library: Library) -> Missing:
        call = self._call
        if not call.documents.prepared:
            self._stale = await look_up(self._model, call, call.documents, library, self._place, self._plan)
        elif len(call.documents.by_id.away) == len(call.documents):
            raise RequestError(503, AWAY_PROBLEM, retry_after=AWAY_SECONDS)
        missing = Missing(call.documents.by_id.unknown, call.documents.by_id.away)
        if call.strict:
            _check_strict(call, missing)
        return missing

    async def _chosen(self, step: Choose) -> NDArray[np.float32]:
        own = sum(len(packed.ids) for packed in step.sequences)
        until = self._plan.chosen_by(own, step.tokens_to_score, time.perf_counter())
        self._queued()
        logits = (await self._model.scorer.choose(step.sequences, Priority(until, level=self._call.priority))).logits
        self._model.metrics.add("blocks", len(step.sequences) - int(np.isneginf(logits).sum()), step="asked")
        return logits

    async def _scored(self, step: Score) -> Scores:
        """The first look's scores, and then those of the second, whose time is a stage of its own."""
        if self._library is not None and not step.further:
            renew(self._library, self._call.documents, self._stale, self._model.fingerprint)
        until = self._plan.scored_by
        self._queued()
        priority = Priority(until, step.order() if until else None, self._call.priority)
        scored = await self._model.scorer.score(self._call, step.candidates, priority)
        if step.further:
            self._stages.add("second_look", scored.queue_seconds + scored.model_seconds)
        else:
            self._stages.add("queue", scored.queue_seconds)
            self._stages.add(self._model.scorer.stage, scored.model_seconds)
        return Scores(scored.logits, scored.passages, scored.marks, scored.problem)


def _check_strict(call: Call, missing: Missing) -> None:
    ids = call.documents.stored_ids
    if missing.away:
        problem = f"a part of the store does not answer, and has these ids: {named(missing.away, ids)}"
        raise RequestError(503, f"{problem}; try again, or ask without `strict`", retry_after=AWAY_SECONDS)
    if missing.unknown:
        problem = f"the store has no document of these ids: {named(missing.unknown, ids)}; store them, or ask without `strict`"
        raise RequestError(422, problem, ("documents", call.number(min(missing.unknown)), "id"))


async def prepare_once(model: Parts, queries: Queries, admitted: Admitted) -> None:
    """Look up and prepare the documents of several queries, each once, and hand them out. Raises RequestError as `look_up` does."""
    plan, place, library = admitted.plan, admitted.place, admitted.library
    documents, stale = queries.documents, dict[str, StoredDocument]()
    if library is not None:
        stale = await look_up(model, queries.asked[0], documents, library, place, plan)
    prepared = await model.preparer.read(documents, list, plan.prepared_by)
    if library is not None:
        renew(library, documents, stale, model.fingerprint)
    place.add_bytes(sum(one.nbytes for number, one in enumerate(prepared) if one and number not in documents.by_id.ids))
    queries.hand_out(prepared)
    place.add_bytes(queries.repeated)


async def look_up(
    model: Parts, call: Call, documents: Documents, library: Library, place: Place, plan: Plan
) -> dict[str, StoredDocument]:
    """Look up documents in the store and enter them, with their texts if the call or the scorer reads these, if there is time.

    Args:
        model: says how documents are prepared, and which ones it can use.
        call: one of those that have the documents.
        documents: `by_id` is filled, and the texts of stale documents.
        library: the store.
        place: counts the bytes of the documents before they are decoded.
        plan: says until when documents are prepared.

    Returns:
        The stale documents by id, for `renew`.

    Raises RequestError: 503 when the store does not answer for any document, 429 or 422 when there is no room for the documents.
    """
    by_id, check = documents.by_id, model.bundle.pipeline.check
    texts = call.return_documents or call.asked.reads_texts or model.scorer.reads_texts
    ids = list(dict.fromkeys(by_id.ids.values()))
    found = await library.look_up(
        by_id.namespace, ids, model.fingerprint, texts=texts, check=check, until=plan.prepared_by, reserve=place.add_bytes
    )
    stale: dict[str, StoredDocument] = {}
    for identity, one in found.items():
        by_id.chars[identity] = int(one.stored.prepared.ends.max(initial=0)) if isinstance(one, Found) else 0
        if isinstance(one, Found) and one.stale:
            by_id.stale.add(identity)
            stale[identity] = one.stored
        elif isinstance(one, Found):
            by_id.found[identity] = one.stored.prepared
    repeated = 0
    for number, identity in by_id.ids.items():
        one = found.get(identity)
        if one is AWAY:
            by_id.away.add(number)
        elif one is None and identity in found:
            by_id.unknown.add(number)
        elif one is not None and one.text is not None:
            documents.texts[number], documents.titles[number] = one.text, one.stored.title
            repeated += len(one.text) * texts
    if len(by_id.away) == len(documents):
        raise RequestError(503, AWAY_PROBLEM, retry_after=AWAY_SECONDS)
    place.add_bytes(repeated)  # the answer repeats a text as often as the call names its id
    return stale


def renew(library: Library, documents: Documents, stale: dict[str, StoredDocument], fingerprint: bytes) -> None:
    """Write the stale documents of `look_up` back in the background, as they have been prepared again since."""
    by_id = documents.by_id
    renewed = by_id.renewed.copy()  # a slice that ends late may still add to it
    library.renew(by_id.namespace, [(stale[identity], one) for identity, one in renewed.items()], fingerprint)
