"""One model: a bundle, every step from a call to its ranking, and what the metrics count of its answer."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import NamedTuple

from keyblock.bundle import TOKENIZER_FILE
from keyblock.fingerprint import preparation_fingerprint
from keyblock.ranking.answer import Answered, empty_documents, finished
from keyblock.ranking.answer import Outcome as Known
from keyblock.ranking.flow import Answer
from keyblock.ranking.order import ScoredBy
from keyblock.ranking.pruning import never
from service.call import Call, Documents, Queries
from service.errors import RequestError
from service.lru import DocumentCache
from service.pace import Pace
from service.queue.worker import Worker
from service.ranking.admission import ANSWERING, PREPARING, Place
from service.ranking.drive import Admitted, Drive, Plan, Work, make_plan, prepare_once
from service.ranking.loading import LoadedBundle
from service.ranking.preparation import LARGE_CHARS, SLICES_IN_HAND, Preparer, Threads, costs, sizes
from service.settings import Settings
from service.store.library import OFF, Library
from service.telemetry.account import Stages
from service.telemetry.metrics import Metrics

SPECIALS = 3  # tokens: [CLS] query [SEP] blocks [SEP]
ANSWERING_SECONDS = 0.005  # to find the spans and contexts of a result, until that is measured
PROMISED_SECONDS = 0.05  # an answer exceeds its deadline by at most this, or by a batch if that takes longer


@dataclass(frozen=True)
class Shared:
    """Everything that the models of a service share.

    Attributes:
        cache: prepared documents.
        threads: the threads that prepare documents.
        worker: owns the model's thread.
        library: stored documents; None: requests for them are refused.
    """

    settings: Settings
    metrics: Metrics
    cache: DocumentCache
    threads: Threads
    worker: Worker
    library: Library | None


class Outcome(NamedTuple):
    """A call whose documents are scored.

    Attributes:
        step: the last step of the flow, which makes the answer.
        estimated_tokens: estimate of the call's tokens with one sequence per document, made before the call was prepared.
        admitted: says until when the answer must be made, and in which turns.
    """

    step: Answer
    estimated_tokens: float
    admitted: Admitted


class Model:
    """A bundle's pipeline and its scorer. The service keeps no other reference to a model's parts, so they end with the model.

    Args:
        opened: the bundle, ready to run.
        shared: everything that the models share.

    Attributes:
        scorer: makes logits; its graphs are warmed up from now on, see `Scorer.warmed`.
        metrics: the service's metrics, labelled with this model.
        fingerprint: of the way in which the model prepares documents, 16 bytes.
        load_seconds: time that it took to open the graphs.

    Raises BundleError if the bundle's files have changed since they were checked, and ModelDeadError.
    """

    def __init__(self, opened: LoadedBundle, shared: Shared) -> None:
        self.bundle = bundle = opened.bundle
        self.name = bundle.manifest.name
        self.load_seconds = opened.seconds
        self.fingerprint = bytes.fromhex(preparation_fingerprint(bundle.pipeline, bundle.path / TOKENIZER_FILE))
        with ThreadPoolExecutor(1) as pool:  # proves that all files read so far, graphs included, came from this bundle
            checked = pool.submit(bundle.check_files)
            self.preparer = Preparer(bundle.pipeline, shared.cache, shared.threads, shared.metrics, self.fingerprint)
            checked.result()
        self.metrics = shared.metrics.of(self.name)
        self.scorer = opened.scorer(shared.worker)
        self._answering = Pace(ANSWERING_SECONDS)  # of a result's spans and contexts
        self._fed = Pace()  # tokens fed for each token of an estimate of one sequence per document
        self._shared = shared

    async def score(self, call: Call, stages: Stages, place: Place) -> Outcome:
        """Prepare and score a call, as far as its deadline allows.

        Raises RequestError: 429 when there is no room for its documents; 422 or 503 when stored documents cannot be had.
        """
        self._check_store(call)
        return await self.score_one(call, self._admitted([call], call.documents, stages, place), stages)

    async def prepare(self, queries: Queries, stages: Stages, place: Place) -> Admitted:
        """Find room for all queries of a request, and prepare their documents, each once.

        Raises RequestError as `score` does, but for what concerns a single query.
        """
        admitted = self._admitted(queries.asked, queries.documents, stages, place)
        await prepare_once(self, queries, admitted)
        return admitted

    async def score_one(self, call: Call, admitted: Admitted, stages: Stages) -> Outcome:
        """Prepare and score one of the admitted calls, as `score` does."""
        self._check_store(call)
        if not self._shared.settings.second_look:
            call = replace(call, second_look=False)
        plan, work = admitted.plan, admitted.work
        tokens = replace(work, chars=sizes(call.documents)).tokens(plan.budget)
        return Outcome(await Drive(self, call, admitted, stages).run(), tokens / work.fed, admitted)

    def _admitted(self, calls: Sequence[Call], documents: Documents, stages: Stages, place: Place) -> Admitted:
        """Take room for the calls of a request together, and plan them.

        Args:
            calls: at least one, all with the same options.
            documents: of all calls, each once.
            stages: of the request.
            place: of the request.

        Raises RequestError 429.
        """
        packing, pairs = self.bundle.manifest.pipeline.packing, sum(len(call.documents) for call in calls)
        budget = packing.kept_inside(calls[0].max_tokens)
        work = self._work(calls, documents)
        time_limit = self._time_limit(calls[0])
        has_deadline = time_limit is not None
        place.set_documents(
            pairs,
            work.own_seconds(budget),
            has_deadline=has_deadline,
            by_text=len(calls) == 1 and not documents.by_id.ids,
            pace=work.model_pace,
            ahead=work.ahead,
        )
        if calls[0].asked.reads_texts:
            place.set_turn(ANSWERING, lambda: self._answering.estimate(_n_results(calls)), has_deadline=has_deadline)
        if (cost := sum(costs(documents))) > LARGE_CHARS:
            pace, threads = self.preparer.pace, self._shared.threads.number
            place.set_turn(PREPARING, lambda: pace.estimate(cost) / threads, has_deadline=has_deadline)
        plan = Plan(budget)
        if time_limit is not None:
            plan = make_plan(budget, packing, stages.began, time_limit, work, time.perf_counter())
        library = self._shared.library if documents.by_id.ids else None
        return Admitted(plan, work, place, pairs, asyncio.Semaphore(SLICES_IN_HAND), library)

    def _time_limit(self, call: Call) -> float | None:
        """Seconds that a call may take; None: as long as it needs."""
        return call.deadline if call.deadline is not None else self._shared.settings.default_deadline_ms / 1000 or None

    def count_answer(self, call: Call, seconds: float, *, degraded: bool) -> None:
        """Count whether a call met its deadline, and whether its answer was degraded."""
        time_limit = self._time_limit(call)
        if time_limit is not None:
            self.metrics.add("degraded_requests", degraded)
            late = seconds - time_limit
            promised = max(PROMISED_SECONDS, self._shared.settings.batch_ms / 1000)
            self.metrics.add("deadlines", outcome="met" if late <= 0 else "late" if late <= promised else "missed")

    def _check_store(self, call: Call) -> None:
        """Raise RequestError 422 if the call has documents by id, and the service has no store."""
        if call.documents.by_id.ids and self._shared.library is None:
            number = next(iter(call.documents.by_id.ids))
            raise RequestError(422, f"is missing or null, and {OFF}", ("documents", number, "text"))

    def _work(self, calls: Sequence[Call], documents: Documents) -> Work:
        packing = self.bundle.manifest.pipeline.packing
        chars = [chars for call in calls for chars in sizes(call.documents)]
        a_char = sum(costs(documents)) / max(sum(chars), 1)
        paces = self.preparer.pace.seconds * a_char, self.scorer.pace.seconds
        fed = self._fed.seconds or 1.0
        answering = self._answering.estimate(_n_results(calls)) if calls[0].asked.reads_texts else 0.0
        return Work(chars, packing.longest_query + SPECIALS, *paces, self.scorer.backlog(), fed, answering)

    def answer(self, call: Call, outcome: Outcome) -> Answered:
        """The answer to a call that requests no spans and contexts; it is counted."""
        return self._counted(call, outcome, finished(outcome.step.steps(never)))

    async def answer_in_turns(self, call: Call, outcome: Outcome) -> Answered:
        """The answer to a call, with the spans and contexts that it requests, as far as its deadline allows; it is counted."""
        until = outcome.admitted.plan.answered_by
        late = never if until is None else lambda: time.perf_counter() >= until
        async with outcome.admitted.turns:
            answered, seconds = await self._shared.threads.in_turns(outcome.step.steps(late))
        if call.asked.reads_texts:
            self._answering.measured(len(answered.ranking.order) - answered.unread, seconds)
        return self._counted(call, outcome, answered)

    def _counted(self, call: Call, outcome: Outcome, answered: Answered) -> Answered:
        call.warnings.extend(answered.warnings)
        count(answered, outcome.step.outcome, self.metrics)
        if not answered.ranking.degraded:
            self._fed.measured(outcome.estimated_tokens, answered.ranking.n_tokens - answered.ranking.looked_tokens)
        return answered


def _n_results(calls: Sequence[Call]) -> int:
    """The most results of calls."""
    return sum(min(call.asked.top_n or len(call.documents), len(call.documents)) for call in calls)


def count(answered: Answered, outcome: Known, metrics: Metrics) -> None:
    """Count what an answer holds, and what was not done in full; it is made of `outcome`."""
    ranking = answered.ranking
    scored = zip(outcome.candidates, ranking.scored_by, strict=True)
    metrics.add("documents", len(outcome.candidates))
    metrics.add("skipped", ranking.skipped)
    metrics.add("looked", ranking.looked_tokens)
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
        metrics.add("context_tokens", answered.saved.tokens_of_documents, of="documents")
