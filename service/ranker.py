"""A bundle at work: preparation, the engine, and what is between a call and its ranking."""

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Self, TypeVar

from keyblock import __version__
from keyblock.bundle import Bundle, BundleError, load_bundle
from keyblock.pipeline import QUERY_TERMS
from keyblock.prepared import PreparedQuery
from keyblock.runtime.batching import LENGTHS
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Choice, Provider
from service.cache import DocumentCache
from service.call import Call, Documents
from service.engine import Caps, Engine, Graphs
from service.errors import some
from service.jobs import Scored
from service.metrics import Metrics
from service.preparation import SLICES_IN_HAND, Preparer
from service.ranking import Candidate, Ranking, rank
from service.settings import Settings
from service.stages import Stages

log = logging.getLogger(__name__)
EDGE_THREADS = 2  # read and write JSON, apart from preparation so that small requests do not wait behind large ones

T = TypeVar("T")


class Ranker:
    """Everything that serves one bundle. `start` it before use, `close` it after.

    Args:
        settings: threads, caps and sizes.
        bundle: what is served.
        graphs: its graphs at work.
        provider: what runs it, and why that, for /info.
    """

    def __init__(self, settings: Settings, bundle: Bundle, graphs: Graphs, provider: dict[str, str]) -> None:
        self.settings = settings
        self.bundle = bundle
        self.provider = provider
        self.metrics = Metrics()
        self.engine = Engine(graphs, bundle.pipeline, Caps(settings.token_cap, settings.batch_ms / 1000), self.metrics)
        self._edge = ThreadPoolExecutor(EDGE_THREADS, "edge")
        self._edge_of_large = ThreadPoolExecutor(EDGE_THREADS, "edge-large")
        self._pool = ThreadPoolExecutor(max(settings.n_threads, SLICES_IN_HAND + 1), "prepare")  # no request ever has all of it
        self._preparer = Preparer(bundle.pipeline, DocumentCache(settings.cache_bytes), self._pool, self.metrics)

    @classmethod
    def load(cls, settings: Settings) -> Self:
        """Load the bundle and open its graphs. Raises BundleError, ProviderError or SessionError, each one clear line."""
        bundle = load_bundle(settings.bundle)
        longest = bundle.manifest.pipeline.packing.budget_range[1]
        if longest > LENGTHS[-1]:
            raise BundleError(f"{bundle.path}: budget_range ends at {longest} tokens; this version serves up to {LENGTHS[-1]}")
        model = GraphModel.open(bundle, settings.provider, settings.n_threads, settings.precision)
        choice = model.session.choice
        log.info("%s from %s, on %s: %s", bundle.manifest.name, bundle.path, choice.provider, choice.why)
        graphs = Graphs(model.session, model.selector, None if model.aggregator is None else model.combine)
        return cls(settings, bundle, graphs, _told(settings.provider, choice))

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

    async def beside(self, work: Callable[[], T], *, large: bool) -> T:
        """Do short work off the event loop; that of large requests in threads of its own, so that it holds up no small one."""
        return await asyncio.get_running_loop().run_in_executor(self._edge_of_large if large else self._edge, work)

    async def score(self, call: Call, stages: Stages) -> tuple[list[Candidate], Scored, int]:
        """Prepare and score a call: its candidates in the order given, their logits, and the token budget they had."""
        budget = self._budget(call)
        query = await self._query(call)
        candidates = await self._candidates(query, call.documents, budget, stages)
        scored = await self.engine.score([candidate.sequences for candidate in candidates])
        stages.add("queue", scored.queue_seconds)
        stages.add("model", scored.model_seconds)
        stages.skip()
        return candidates, scored, budget

    async def _candidates(self, query: PreparedQuery, documents: Documents, budget: int, stages: Stages) -> list[Candidate]:
        """The documents with their chosen blocks; a learned selector asks the model about all their shortlists at once."""
        if self.bundle.pipeline.learned is None:
            candidates = await self._preparer.candidates(query, documents, budget)
            stages.end("prepare")
            return candidates
        shortlisted = await self._preparer.shortlists(query, documents, budget)
        stages.end("prepare")
        asked = list(chain.from_iterable(shortlist.sequences for _, shortlist in shortlisted))
        chosen = await self.engine.choose(asked)
        candidates = await self._preparer.selected(query, shortlisted, chosen.logits, budget)
        stages.end("select")
        return candidates

    def rank(self, call: Call, candidates: list[Candidate], scored: Scored, budget: int) -> Ranking:
        """Order what was scored, and say what was not."""
        fusion = self.bundle.manifest.pipeline.fusion
        ranking = rank(candidates, scored.logits, fusion, budget, top_n=call.top_n, raw=call.raw_scores)
        self.metrics.add("documents", len(candidates))
        if unscored := [str(number) for number, by_model in enumerate(ranking.by_model) if not by_model]:
            self.metrics.add("unscored", len(unscored))
            call.warnings.append(f"documents without text to score, ranked last: {some(unscored, 10)}")
        return ranking

    async def _query(self, call: Call) -> PreparedQuery:
        query = await self._preparer.query(call.query)
        if query.truncated:
            cap = self.bundle.manifest.pipeline.packing.query_tokens
            call.warnings.append(
                f"query: the model reads its first {cap} tokens; up to {QUERY_TERMS} different words of it select blocks"
            )
        if not len(query.token_ids):
            call.warnings.append("query: holds nothing that the model reads; the order means little")
        return query

    def _budget(self, call: Call) -> int:
        """The tokens a sequence may have: what was asked for, kept inside the range the bundle was measured for."""
        packing = self.bundle.manifest.pipeline.packing
        if call.max_tokens is None:
            return packing.budget
        low, high = packing.budget_range
        if call.max_tokens > high:
            call.warnings.append(f"max_tokens_per_doc: lowered to {high}, the most this model was measured at")
        elif call.max_tokens < low:
            call.warnings.append(f"max_tokens_per_doc: raised to {low}, the least this model was measured at")
        return int(min(max(call.max_tokens, low), high))


def _told(asked: Provider, choice: Choice) -> dict[str, str]:
    return {"asked": asked.value, "chosen": choice.provider.value, "arithmetic": choice.precision.value, "why": choice.why}
