"""One model: a bundle, and every step from a call to its ranking."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from keyblock.bundle import TOKENIZER_FILE, Bundle
from keyblock.fingerprint import preparation_fingerprint
from keyblock.prepared import PreparedQuery
from keyblock.ranking.answer import Answered, Documents
from keyblock.ranking.answer import answered as complete
from keyblock.ranking.order import Ranking, first_to_read, without_spared
from keyblock.ranking.warnings import about_budget, about_instruction, about_query
from service.call import Call
from service.engine.instance import Turn
from service.errors import RequestError
from service.pace import Pace
from service.ranking.admission import Place
from service.ranking.cache import DocumentCache
from service.ranking.outcome import Chosen, Outcome, ids_of, ranked
from service.ranking.plan import Plan, Work, make_plan
from service.ranking.preparation import Preparer, sizes
from service.ranking.scorers import Scorer
from service.ranking.slicing import LARGE_CHARS, Threads
from service.ranking.stored import look_up, renew
from service.settings import Settings
from service.store.library import AWAY_SECONDS, OFF, Library
from service.telemetry.metrics import Metrics
from service.telemetry.stages import Stages

SPECIALS = 3  # tokens: [CLS] query [SEP] blocks [SEP]
PROMISED_SECONDS = 0.05  # an answer exceeds its deadline by at most this, or by a batch if that takes longer


@dataclass(frozen=True)
class Shared:
    """Everything that the models of a service share.

    Attributes:
        cache: prepared documents.
        threads: the threads that prepare documents.
        library: stored documents; None: requests for them are refused.
    """

    settings: Settings
    metrics: Metrics
    cache: DocumentCache
    threads: Threads
    library: Library | None


class Model:
    """A bundle's pipeline and its scorer. The service keeps no other reference to a model's parts, so they end with the model.

    Args:
        bundle: says how documents are prepared.
        scoring: makes the scorer, which counts in the metrics that it is given.
        shared: everything that the models share.
        load_seconds: see below.

    Attributes:
        scorer: makes logits; its graphs are warmed up from now on, see `Scorer.warmed`.
        metrics: the service's metrics, labelled with this model.
        fingerprint: of the way in which the model prepares documents, 16 bytes.
        load_seconds: time that it took to open the graphs.

    Raises BundleError if the bundle's files have changed since they were checked, and the errors of `scoring`.
    """

    def __init__(self, bundle: Bundle, scoring: Callable[[Metrics], Scorer], shared: Shared, load_seconds: float = 0.0) -> None:
        self.bundle = bundle
        self.name = bundle.manifest.name
        self.load_seconds = load_seconds
        self.fingerprint = bytes.fromhex(preparation_fingerprint(bundle.pipeline, bundle.path / TOKENIZER_FILE))
        with ThreadPoolExecutor(1) as pool:  # proves that all files read so far, graphs included, came from this bundle
            checked = pool.submit(bundle.check_files)
            self.preparer = Preparer(self.bundle.pipeline, shared.cache, shared.threads, shared.metrics, self.fingerprint)
            checked.result()
        self.metrics = shared.metrics.of(self.name)
        self.scorer = scoring(self.metrics)
        self._fed = Pace()  # tokens fed for each token of an estimate of one sequence per document
        self._shared = shared

    async def score(self, call: Call, stages: Stages, place: Place) -> Outcome:
        """Prepare and score a call, as far as its deadline allows.

        Raises RequestError: 429 when there is no room for its documents; 422 or 503 when stored documents cannot be had.
        """
        library = self._library_for(call)
        packing = self.bundle.manifest.pipeline.packing
        call.warnings.extend(about_budget(call.max_tokens, packing))
        budget = packing.kept_inside(call.max_tokens)
        work = self._work(call)
        time_limit = self._time_limit(call)
        has_deadline, by_text = time_limit is not None, library is None
        place.set_documents(
            len(call.documents),
            work.own_seconds(budget),
            has_deadline=has_deadline,
            by_text=by_text,
            pace=work.model_pace,
            ahead=work.ahead,
        )
        if (chars := sum(work.chars)) > LARGE_CHARS:
            pace, threads = self.preparer.pace, self._shared.threads.number
            place.set_preparation(lambda: pace.estimate(chars) / threads, has_deadline=has_deadline)
        plan = Plan(budget) if time_limit is None else make_plan(budget, packing, stages.began, time_limit, work, self._now())
        query = await self._query(call)
        if library is not None:
            stale = await look_up(
                library,
                call.documents,
                self.fingerprint,
                place,
                texts=call.return_documents or call.asked.reads_texts or self.scorer.reads_texts,
                check=self.bundle.pipeline.check,
                until=plan.prepared_by,
            )
            _check_strict(call)
        chosen = await self._candidates(query, call, plan, stages, place)
        config = self.bundle.manifest.pipeline
        candidates = without_spared(chosen.candidates, config, call.asked.results(call.first_stage, config))
        chosen = chosen._replace(candidates=candidates)
        if library is not None:
            renew(library, call.documents, stale, self.fingerprint)
        order = first_to_read(candidates, config) if plan.scored_by else None
        turn = Turn(plan.scored_by, order, call.priority)
        place.queued()
        scored = await self.scorer.score(call, candidates, turn)
        stages.add("queue", scored.queue_seconds)
        stages.add(self.scorer.stage, scored.model_seconds)
        return Outcome(plan, chosen, scored, query, work.tokens(plan.budget) / work.fed)

    def _now(self) -> float:
        return self._shared.threads.machine.now()

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

    def _library_for(self, call: Call) -> Library | None:
        """The store, if the call has documents by id. Raises RequestError 422 if the service has no store."""
        if not call.documents.by_id.ids:
            return None
        if self._shared.library is None:
            number = next(iter(call.documents.by_id.ids))
            raise RequestError(422, f"is missing or null, and {OFF}", ("documents", number, "text"))
        return self._shared.library

    def _work(self, call: Call) -> Work:
        packing = self.bundle.manifest.pipeline.packing
        paces = self.preparer.pace.seconds, self.scorer.pace.seconds
        fed = self._fed.seconds or 1.0
        return Work(sizes(call.documents), packing.longest_query + SPECIALS, *paces, self.scorer.backlog, fed)

    async def _candidates(self, query: PreparedQuery, call: Call, plan: Plan, stages: Stages, place: Place) -> Chosen:
        """The documents with their chosen blocks; a learned selector gives the model all shortlists at once."""
        if not self.bundle.pipeline.asks_model:
            candidates = await self.preparer.candidates(query, call.documents, plan.budget, plan.prepared_by)
            stages.end("prepare")
            return Chosen(candidates)
        shortlisted = await self.preparer.shortlists(query, call.documents, plan.budget, plan.prepared_by)
        stages.end("prepare")
        sequences = [packed for one in shortlisted if one is not None for packed in one.shortlist.sequences]
        until = plan.chosen_by(sum(len(packed.ids) for packed in sequences), plan.budget * len(shortlisted), self._now())
        place.queued()
        chosen = await self.scorer.choose(sequences, Turn(until, priority=call.priority))
        candidates = await self.preparer.selected(query, shortlisted, chosen.logits, plan.budget, plan.scored_by)
        stages.end("select")
        n_unscored = int(np.isneginf(chosen.logits).sum())
        self.metrics.add("blocks", len(sequences) - n_unscored, step="asked")
        return Chosen(candidates, n_unscored)

    def rank(self, call: Call, outcome: Outcome) -> Ranking:
        """Order the documents, and warn of everything that was not done in full."""
        ranking = ranked(call, outcome, self.bundle.manifest.pipeline, self.metrics)
        if not ranking.degraded:
            self._fed.measured(outcome.estimated_tokens, ranking.n_tokens)
        return ranking

    def answer(self, call: Call, outcome: Outcome) -> Answered:
        """The ranking of a call, with the spans and contexts that it requests."""
        ranking, asked = self.rank(call, outcome), call.asked
        documents = Documents(outcome.chosen.candidates, call.documents.texts, outcome.scored.marks)
        answered = complete(self.bundle.pipeline, outcome.query, documents, ranking, asked)
        call.warnings.extend(answered.warnings)
        self.metrics.add("spans", sum(map(len, answered.spans.values())))
        self.metrics.add("below", answered.below or 0)
        if answered.saved is not None:
            self.metrics.add("context_tokens", answered.saved.tokens, of="contexts")
            self.metrics.add("context_tokens", answered.saved.of_documents, of="documents")
        return answered

    async def _query(self, call: Call) -> PreparedQuery:
        query = await self.preparer.query(call.query, call.instruction)
        call.warnings.extend(about_instruction(call.instruction, self.bundle.pipeline.tokenizer))
        if not self.scorer.reads_texts:  # a scorer that reads texts gets the whole query
            call.warnings.extend(about_query(query))
        return query


def _check_strict(call: Call) -> None:
    if not call.strict:
        return
    if away := call.documents.by_id.away:
        problem = (
            f"a part of the store does not answer, and has these ids: {ids_of(call, away)}; try again, or ask without `strict`"
        )
        raise RequestError(503, problem, retry_after=AWAY_SECONDS)
    if unknown := call.documents.by_id.unknown:
        path = ("documents", min(unknown), "id")
        problem = f"the store has no document of these ids: {ids_of(call, unknown)}; store them, or ask without `strict`"
        raise RequestError(422, problem, path)
