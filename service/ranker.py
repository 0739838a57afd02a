"""A bundle at work: preparation, the engine, and what is between a call and its ranking."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import NamedTuple, Self, TypeVar

import numpy as np

from keyblock import __version__
from keyblock.bundle import TOKENIZER_FILE, Bundle, BundleError, load_bundle
from keyblock.fingerprint import preparation_fingerprint
from keyblock.pipeline import QUERY_TERMS
from keyblock.prepared import PreparedQuery
from keyblock.runtime.batching import LENGTHS
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Choice, Provider
from service.admission import Admission, Place
from service.cache import DocumentCache
from service.call import Call
from service.engine import Caps, Engine, Graphs, Turn
from service.errors import RequestError, some
from service.jobs import Scored
from service.metrics import Metrics
from service.pace import Pace
from service.plan import Plan, Work, make_plan
from service.preparation import SLICES_IN_HAND, Preparer, sizes
from service.ranking import Candidate, Ranking, ScoredBy, preranking, rank
from service.settings import Settings
from service.stages import Stages
from service.store.base import DocumentStore
from service.store.library import OFF, Library
from service.store.opening import open_store

log = logging.getLogger(__name__)
SPECIALS = 3  # tokens: [CLS] query [SEP] blocks [SEP]
DEAD_SECONDS = 10  # until a supervisor has restarted a dead service
UNREADY = "unready"
LONGEST_SHOWN = 40  # characters of an id that a message repeats
EDGE_THREADS = 2  # read and write JSON, apart from preparation so that small requests do not wait behind large ones

T = TypeVar("T")


class Outcome(NamedTuple):
    """What became of a call.

    Attributes:
        plan: how it was done.
        candidates: its documents in the order given.
        scored: their logits.
        unasked: blocks that a learned selector had no time for.
        reckoned: tokens of one sequence a document, as they were reckoned beforehand.
    """

    plan: Plan
    candidates: list[Candidate]
    scored: Scored
    unasked: int
    reckoned: float


class Ranker:
    """Everything that serves one bundle. `start` it before use, `close` it after.

    Args:
        settings: threads, caps and sizes.
        bundle: what is served.
        graphs: its graphs at work.
        provider: what runs it, and why that, for /info.
        store: keeps documents by id; none: requests for them are refused.
    """

    def __init__(
        self,
        settings: Settings,
        bundle: Bundle,
        graphs: Graphs,
        provider: dict[str, str],
        store: DocumentStore | None = None,
    ) -> None:
        self.settings = settings
        self.bundle = bundle
        self.provider = provider
        self._fed = Pace()  # tokens for each one that a sequence a document has
        self._fusion = bundle.manifest.pipeline.fusion
        self.metrics = Metrics()
        self.engine = Engine(
            graphs, bundle.pipeline, Caps(settings.token_cap, settings.batch_ms / 1000, settings.hung_seconds), self.metrics
        )
        self.admission = Admission(settings, self._ahead, self.engine.pace, self.metrics)
        self._edge = ThreadPoolExecutor(EDGE_THREADS, "edge")
        self._edge_of_large = ThreadPoolExecutor(EDGE_THREADS, "edge-large")
        self._pool = ThreadPoolExecutor(max(settings.n_threads, SLICES_IN_HAND + 1), "prepare")  # no request ever has all of it
        self.preparer = Preparer(bundle.pipeline, DocumentCache(settings.cache_bytes), self._pool, self.metrics)
        self.library = None if store is None else _library(store, bundle, settings, self.metrics)

    @classmethod
    def load(cls, settings: Settings) -> Self:
        """Load the bundle and open its graphs and the store.

        Raises BundleError, ProviderError, SessionError or StoreUnavailableError, each one clear line.
        """
        bundle = load_bundle(settings.bundle)
        longest = bundle.manifest.pipeline.packing.budget_range[1]
        if longest > LENGTHS[-1]:
            raise BundleError(f"{bundle.path}: budget_range ends at {longest} tokens; this version serves up to {LENGTHS[-1]}")
        model = GraphModel.open(bundle, settings.provider, settings.n_threads, settings.precision)
        store = open_store(settings)
        choice = model.session.choice
        log.info("%s from %s, on %s: %s", bundle.manifest.name, bundle.path, choice.provider, choice.why)
        graphs = Graphs(model.session, model.selector, None if model.aggregator is None else model.combine)
        return cls(settings, bundle, graphs, _told(settings.provider, choice), store)

    def start(self) -> None:
        """Start the model's thread, which warms up before anything is ready."""
        manifest = self.bundle.manifest
        names = {"bundle": manifest.name, "precision": manifest.graph.precision, "provider": self.provider["chosen"]}
        self.metrics.set("build", 1, version=__version__, **names)
        self.engine.start()

    def close(self) -> None:
        """Stop the threads; what still waits fails."""
        self.engine.close()
        for pool in (self._edge, self._edge_of_large, self._pool):
            pool.shutdown(wait=True, cancel_futures=True)
        if self.library is not None:
            self.library.close()

    async def beside(self, work: Callable[[], T], *, large: bool) -> T:
        """Do short work off the event loop; that of large requests in threads of its own, so that it holds up no small one."""
        return await asyncio.get_running_loop().run_in_executor(self._edge_of_large if large else self._edge, work)

    def enter(self, n_bytes: int) -> Place:
        """Let a request in. Raises RequestError 503 when nothing can be served, 429 when there is no room."""
        if not self.engine.alive:
            raise dead()
        if not self.engine.ready:
            self.metrics.add("refused", why="unready")
            raise RequestError(503, "the model is warming up: try again, or another replica", kind=UNREADY, retry_after=1)
        return self.admission.enter(n_bytes)

    def _ahead(self, tokens: float) -> float:
        """Seconds until the model has done as much of every job that it has, or all of it."""
        return self.engine.pace.estimate(self.engine.backlog(tokens))

    async def score(self, call: Call, stages: Stages, place: Place) -> Outcome:
        """Prepare and score a call, as far as its deadline allows.

        Raises RequestError: 429 when its documents find no room; 422 or 503 where documents by id cannot be had.
        """
        library = self._library_for(call)
        budget = self._budget(call)
        work = self._work(call)
        hurry = call.deadline if call.deadline is not None else self.settings.default_deadline_ms / 1000 or None
        place.reads(len(call.documents), work.tokens(budget), hurried=hurry is not None, by_text=library is None)
        packing = self.bundle.manifest.pipeline.packing
        plan = Plan(budget) if hurry is None else make_plan(budget, packing, stages.began, hurry, work)
        query = await self._query(call)
        if library is not None:
            await library.look_up(call.documents, texts=call.return_documents, until=plan.prepared_by)
            _check_strict(call)
        candidates, unasked = await self._candidates(query, call, plan, stages, place)
        if library is not None:
            library.renew(call.documents)
        order = np.argsort(-preranking(candidates, self._fusion), kind="stable").tolist() if plan.scored_by else None
        turn = Turn(plan.scored_by, order, call.priority)
        place.queued()
        scored = await self.engine.score([candidate.sequences for candidate in candidates], turn)
        stages.add("queue", scored.queue_seconds)
        stages.add("model", scored.model_seconds)
        stages.skip()
        return Outcome(plan, candidates, scored, unasked, work.tokens(plan.budget) / work.fed)

    def _library_for(self, call: Call) -> Library | None:
        """What a call has to ask for documents by id, if it has any. Raises RequestError 422 where there is no store."""
        if not call.documents.by_id.ids:
            return None
        if self.library is None:
            number = next(iter(call.documents.by_id.ids))
            raise RequestError(422, f"is missing or null, and {OFF}", ("documents", number, "text"))
        return self.library

    def _work(self, call: Call) -> Work:
        packing = self.bundle.manifest.pipeline.packing
        paces = self.preparer.pace.seconds, self.engine.pace.seconds
        fed = self._fed.seconds or 1.0
        return Work(sizes(call.documents), packing.query_tokens + SPECIALS, *paces, self.engine.backlog, fed)

    async def _candidates(
        self, query: PreparedQuery, call: Call, plan: Plan, stages: Stages, place: Place
    ) -> tuple[list[Candidate], int]:
        """The documents with their chosen blocks, and how many blocks a learned selector had no time for.

        It asks the model about all their shortlists at once.
        """
        if self.bundle.pipeline.learned is None:
            candidates = await self.preparer.candidates(query, call.documents, plan.budget, plan.prepared_by)
            stages.end("prepare")
            return candidates, 0
        shortlisted = await self.preparer.shortlists(query, call.documents, plan.budget, plan.prepared_by)
        stages.end("prepare")
        asked = [packed for one in shortlisted if one is not None for packed in one.shortlist.sequences]
        until = plan.chosen_by(sum(len(packed.ids) for packed in asked), plan.budget * len(shortlisted))
        place.queued()
        chosen = await self.engine.choose(asked, Turn(until, priority=call.priority))
        candidates = await self.preparer.selected(query, shortlisted, chosen.logits, plan.budget, plan.scored_by)
        stages.end("select")
        return candidates, int(np.isneginf(chosen.logits).sum())

    def rank(self, call: Call, outcome: Outcome) -> Ranking:
        """Order what was scored, and say what was not."""
        plan, candidates, scored = outcome.plan, outcome.candidates, outcome.scored
        ranking = rank(candidates, scored.logits, self._fusion, plan.budget, top_n=call.top_n, raw=call.raw_scores)
        self.metrics.add("documents", len(candidates))
        unknown = call.documents.by_id.unknown
        if unknown:
            call.warnings.append(f"unknown ids, ranked last: {_named(call)}")
        empty = [str(n) for n, one in enumerate(candidates) if one.read and not one.sequences and n not in unknown]
        if empty:
            self.metrics.add("unscored", len(empty))
            call.warnings.append(f"documents without text to score, ranked last: {some(empty, 10)}")
        degraded = self._tell(call, outcome, ranking)
        if not degraded:
            self._fed.measured(outcome.reckoned, ranking.n_tokens)
        return replace(ranking, degraded=degraded)

    def _tell(self, call: Call, outcome: Outcome, ranking: Ranking) -> bool:
        """Whether the deadline cost something; warned of and counted."""
        n, usual = len(outcome.candidates), self._usual_budget(call)
        unread = sum(not candidate.read for candidate in outcome.candidates)
        unscored = ranking.scored_by.count(ScoredBy.SELECTOR)
        told = {
            "tokens": outcome.plan.budget < usual and f"{outcome.plan.budget} tokens a document instead of {usual}",
            "blocks": outcome.unasked
            and f"{outcome.unasked} blocks were not scored in time, so that others may have been chosen in their place",
            "selector": unscored
            and f"{unscored} of {n} documents are ordered by their blocks alone, after those that the model scored",
            "order": unread and f"{unread} of {n} documents were not read and stay in the order given, last",
        }
        for how, what in told.items():
            if what:
                call.warnings.append(f"deadline_ms: {what}")
                self.metrics.add("degraded", how=how)
        return any(told.values())

    async def _query(self, call: Call) -> PreparedQuery:
        query = await self.preparer.query(call.query)
        if query.truncated:
            cap = self.bundle.manifest.pipeline.packing.query_tokens
            call.warnings.append(
                f"query: the model reads its first {cap} tokens; up to {QUERY_TERMS} different words of it select blocks"
            )
        if not len(query.token_ids):
            call.warnings.append("query: holds nothing that the model reads; the order means little")
        return query

    def _budget(self, call: Call) -> int:
        """See `_usual_budget`; warns where that is not what was asked for."""
        low, high = self.bundle.manifest.pipeline.packing.budget_range
        if call.max_tokens is None:
            return self._usual_budget(call)
        if call.max_tokens > high:
            call.warnings.append(f"max_tokens_per_doc: lowered to {high}, the most this model was measured at")
        elif call.max_tokens < low:
            call.warnings.append(f"max_tokens_per_doc: raised to {low}, the least this model was measured at")
        return self._usual_budget(call)

    def _usual_budget(self, call: Call) -> int:
        """The tokens a sequence may have: what was asked for, kept inside the range the bundle was measured for."""
        packing = self.bundle.manifest.pipeline.packing
        low, high = packing.budget_range
        return packing.budget if call.max_tokens is None else int(min(max(call.max_tokens, low), high))


def _library(store: DocumentStore, bundle: Bundle, settings: Settings, metrics: Metrics) -> Library:
    fingerprint = preparation_fingerprint(bundle.pipeline, bundle.path / TOKENIZER_FILE)
    return Library(store, bytes.fromhex(fingerprint), settings.store_ttl_seconds, metrics)


def _named(call: Call) -> str:
    """The unknown ids of a call, as many as a message may name."""
    by_id = call.documents.by_id
    return some([repr(by_id.ids[number][:LONGEST_SHOWN]) for number in sorted(by_id.unknown)])


def _check_strict(call: Call) -> None:
    if call.strict and (unknown := call.documents.by_id.unknown):
        path = ("documents", min(unknown), "id")
        raise RequestError(
            422, f"the store has no document of these ids: {_named(call)}; store them, or ask without `strict`", path
        )


def dead() -> RequestError:
    """The answer where nothing is going to be served until somebody restarts it."""
    return RequestError(503, "the model is not running: try another replica", retry_after=DEAD_SECONDS)


def _told(asked: Provider, choice: Choice) -> dict[str, str]:
    return {"asked": asked.value, "chosen": choice.provider.value, "arithmetic": choice.precision.value, "why": choice.why}
