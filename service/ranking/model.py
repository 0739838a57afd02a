"""One model: a bundle at work, with all that is between a call and its ranking."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from keyblock.answering import Answered, Documents
from keyblock.answering import answered as complete
from keyblock.bundle import TOKENIZER_FILE, Bundle
from keyblock.caveats import about_budget, about_escalation, about_instruction, about_query
from keyblock.fingerprint import preparation_fingerprint
from keyblock.order import Candidate, Ranking, first_to_read, without_spared
from keyblock.prepared import PreparedQuery
from service.call import Call
from service.engine.instance import Turn
from service.errors import RequestError
from service.pace import Pace
from service.ranking.admission import Place
from service.ranking.cache import DocumentCache
from service.ranking.escalating import Chosen, bound, escalate
from service.ranking.outcome import Outcome, ids_of, ranked
from service.ranking.plan import Plan, Work, make_plan
from service.ranking.preparation import Doubts, Preparer, sizes
from service.ranking.scorers import Scorer
from service.ranking.slicing import LARGE_CHARS, Threads
from service.ranking.stored import look_up, renew
from service.settings import Settings
from service.store.library import AWAY_SECONDS, OFF, Library
from service.telemetry.metrics import Metrics
from service.telemetry.stages import Stages

SPECIALS = 3  # tokens: [CLS] query [SEP] blocks [SEP]
PROMISED_SECONDS = 0.05  # or a batch: a deadline is not exceeded by more


@dataclass(frozen=True)
class Shared:
    """What all models of a service share.

    Attributes:
        cache: prepared documents.
        threads: that prepare.
        library: stored documents; none: requests for them are refused.
    """

    settings: Settings
    metrics: Metrics
    cache: DocumentCache
    threads: Threads
    library: Library | None


class Model:
    """A bundle's pipeline and what scores for it, at work; nothing of the service keeps hold of it.

    Args:
        bundle: says how documents are prepared.
        scoring: makes the scorer, which counts in the metrics that it is given.
        shared: what it works with.
        load_seconds: see below.

    Attributes:
        scorer: makes logits; its graphs are warmed up from now on, see `Scorer.warmed`.
        metrics: the service's, of this model.
        fingerprint: of how it prepares documents, 16 bytes.
        load_seconds: that it took to open its graphs.

    Raises BundleError where the bundle's files are not those any more that were checked, and what `scoring` raises.
    """

    def __init__(self, bundle: Bundle, scoring: Callable[[Metrics], Scorer], shared: Shared, load_seconds: float = 0.0) -> None:
        self.bundle = bundle
        self.name = bundle.manifest.name
        self.load_seconds = load_seconds
        self.fingerprint = bytes.fromhex(preparation_fingerprint(bundle.pipeline, bundle.path / TOKENIZER_FILE))
        with ThreadPoolExecutor(1) as aside:  # all that was read, graphs and fingerprint too, must have been of this bundle
            checked = aside.submit(bundle.check_files)
            self.preparer = Preparer(self.bundle.pipeline, shared.cache, shared.threads, shared.metrics, self.fingerprint)
            checked.result()
        self.metrics = shared.metrics.of(self.name)
        self.scorer = scoring(self.metrics)
        self._fed = Pace()  # tokens for each one that a sequence a document has
        self._shared = shared

    async def score(self, call: Call, stages: Stages, place: Place) -> Outcome:
        """Prepare and score a call, as far as its deadline allows.

        Raises RequestError: 429 when its documents find no room; 422 or 503 where documents by id cannot be had.
        """
        library = self._library_for(call)
        packing = self.bundle.manifest.pipeline.packing
        call.warnings.extend(about_budget(call.max_tokens, packing))
        budget = packing.kept_inside(call.max_tokens)
        work = self._work(call)
        hurry = self._hurry(call)
        hurried, by_text = hurry is not None, library is None
        place.reads(
            len(call.documents), work.own_seconds(budget), hurried=hurried, by_text=by_text, pace=work.model_pace, ahead=work.ahead
        )
        if (chars := sum(work.chars)) > LARGE_CHARS:
            pace, threads = self.preparer.pace, self._shared.threads.number
            place.prepares(lambda: pace.estimate(chars) / threads, hurried=hurried)
        plan = Plan(budget) if hurry is None else make_plan(budget, packing, stages.began, hurry, work, self._now())
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

    def _hurry(self, call: Call) -> float | None:
        """Seconds that a call has; None for as long as it takes."""
        return call.deadline if call.deadline is not None else self._shared.settings.default_deadline_ms / 1000 or None

    def answered(self, call: Call, seconds: float, *, degraded: bool) -> None:
        """Count whether a call was answered in the time that it had, and as usual."""
        hurry = self._hurry(call)
        if hurry is not None:
            self.metrics.add("degraded_requests", degraded)
            late = seconds - hurry
            promised = max(PROMISED_SECONDS, self._shared.settings.batch_ms / 1000)
            self.metrics.add("deadlines", outcome="met" if late <= 0 else "late" if late <= promised else "missed")

    def _library_for(self, call: Call) -> Library | None:
        """What a call has to ask for documents by id, if it has any. Raises RequestError 422 where there is no store."""
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
        """The documents with their chosen blocks; a learned selector asks the model about all their shortlists at once."""
        if not self.bundle.pipeline.asks_model:
            doubts: Doubts = {}
            candidates = await self.preparer.candidates(query, call.documents, plan.budget, plan.prepared_by, doubts)
            stages.end("prepare")
            escalation = self.bundle.manifest.pipeline.escalation
            if escalation is None:
                return Chosen(candidates)
            return await self._escalated(query, call, plan, candidates, doubts, escalation.tokens, stages)
        shortlisted = await self.preparer.shortlists(query, call.documents, plan.budget, plan.prepared_by)
        stages.end("prepare")
        asked = [packed for one in shortlisted if one is not None for packed in one.shortlist.sequences]
        until = plan.chosen_by(sum(len(packed.ids) for packed in asked), plan.budget * len(shortlisted), self._now())
        place.queued()
        chosen = await self.scorer.choose(asked, Turn(until, priority=call.priority))
        candidates = await self.preparer.selected(query, shortlisted, chosen.logits, plan.budget, plan.scored_by)
        stages.end("select")
        unasked = int(np.isneginf(chosen.logits).sum())
        self.metrics.add("blocks", len(asked) - unasked, step="asked")
        return Chosen(candidates, unasked)

    async def _escalated(
        self,
        query: PreparedQuery,
        call: Call,
        plan: Plan,
        candidates: list[Candidate],
        doubts: Doubts,
        tokens: int,
        stages: Stages,
    ) -> Chosen:
        """The candidates, those in doubt with the blocks that the model chose; `tokens` are the bundle's bound."""
        pace = self.scorer.pace.seconds
        own = pace * sum(len(packed.ids) for one in candidates for packed in one.sequences)
        allowed = tokens, self._shared.settings.escalation_tokens, call.escalation_tokens
        usual = self.bundle.manifest.pipeline.packing.kept_inside(call.max_tokens)
        asked = None if call.max_tokens is None else plan.budget
        most = bound(allowed, plan, usual, own + self.scorer.backlog(own), pace, self._now(), asked)
        chosen = await escalate(query, candidates, doubts, (self.preparer, self.scorer), plan, most, call.priority)
        if chosen.escalated and chosen.escalated.tokens:
            stages.end("select")
            self.metrics.add("escalation_tokens", chosen.escalated.tokens)
        return chosen

    def rank(self, call: Call, outcome: Outcome) -> Ranking:
        """Order what was scored, and say what was not."""
        ranking = ranked(call, outcome, self.bundle.manifest.pipeline, self.metrics)
        if not ranking.degraded:
            beside = 0 if ranking.escalated is None else ranking.escalated.tokens  # the first to go when time is short
            self._fed.measured(outcome.reckoned, ranking.n_tokens - beside)
        return ranking

    def answer(self, call: Call, outcome: Outcome) -> Answered:
        """The ranking of a call, with the spans and contexts that it asks for."""
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
        call.warnings.extend(about_escalation(call.escalation_tokens, self.bundle.pipeline.config))
        if not self.scorer.reads_texts:  # what does is sent the whole query
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
