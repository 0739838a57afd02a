"""A reranker that runs elsewhere, as a scorer: passages in batches of bounded size, several at once, and requests take turns."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from keyblock.bundle import Bundle
from keyblock.ranking.order import Candidate
from service.call import Call
from service.pace import SecondsAhead, ahead_in_turns
from service.queue.graphs import USUAL, Priority, Scorer, sequences_of
from service.queue.job import Aggregation, Scored, unscored
from service.settings import Settings
from service.telemetry.metrics import Metrics
from service.upstream.client import Upstream, UpstreamError
from service.upstream.passages import passage_text

MOST_REFUSED = 3  # refused batches of a request, after which its other batches are not sent


class UpstreamScorer(Scorer):
    """Scores each candidate's passages with the upstream. To be used on one event loop.

    Args:
        bundle: the pipeline in front of the upstream, see `service.upstream.passages`.
        settings: the upstream's address, and how to use it.
        metrics: the service's metrics, labelled with this model.

    Attributes:
        pace: seconds per token, with all batches under way at once.
        waiting: tokens for which each request in hand still waits.
    """

    stage, reads_texts = "upstream", True

    def __init__(self, bundle: Bundle, settings: Settings, metrics: Metrics) -> None:
        super().__init__()
        self.waiting: dict[object, int] = {}
        self._upstream = Upstream(settings, metrics)
        self._pipeline, self._settings = bundle.pipeline, settings
        self._free = asyncio.Semaphore(settings.upstream_concurrency)
        self._in_flight = 0

    def backlog(self) -> SecondsAhead:
        """See Scorer."""
        return ahead_in_turns([self.pace.estimate(tokens) for tokens in self.waiting.values()])

    async def score(self, call: Call, candidates: Sequence[Candidate], priority: Priority = USUAL) -> Scored:
        """See Scorer; if the upstream fails, `Scored.problem` says why, and the documents have no logit."""
        counts = np.fromiter((len(one.sequences) for one in candidates), np.intp, len(candidates))
        if not counts.sum():
            return unscored(len(candidates))
        packed = chain.from_iterable(one.sequences for one in candidates)
        tokens = np.fromiter((len(one.ids) for one in packed), np.intp, int(counts.sum()))
        order = sequences_of(range(len(candidates)) if priority.order is None else priority.order, counts)
        began = time.perf_counter()
        timeout_at = began + self._settings.upstream_timeout_ms / 1000
        until = timeout_at if priority.until is None else min(priority.until, timeout_at)
        passages = await asyncio.to_thread(self._passages, call, candidates)
        request = _Request(call, passages, tokens, order, self._settings.upstream_batch)
        await self._ask(request, until)
        ended = time.perf_counter()
        started = request.started or ended
        scored, problem = request.logits > -np.inf, request.problem
        aggregation = Aggregation(self._pipeline.aggregator, counts, None, len(tokens))
        logits, of_passages = aggregation.aggregate_known(request.logits, scored)
        if not problem and until == timeout_at and not scored.all():
            problem = f"has not answered in {self._settings.upstream_timeout_ms} ms"
        return Scored(logits, started - began, ended - started, of_passages, problem)

    def labels(self) -> dict[str, str]:
        """See Scorer."""
        return {"precision": "", "provider": self.stage}

    def describe(self, settings: Settings) -> dict[str, Any]:
        """See Scorer."""
        names = ("passages", "passage_tokens", "batch", "concurrency", "timeout_ms", "retries")
        about = {name: getattr(settings, f"upstream_{name}") for name in names}
        return {"upstream": {"url": settings.upstream_place, "kind": self._upstream.kind.value, **about}}

    async def close(self) -> None:
        """See Scorer."""
        await self._upstream.close()

    def _passages(self, call: Call, candidates: Sequence[Candidate]) -> list[str]:
        """The texts of all sequences, cut to the tokens asked for, in their order; a candidate's are in document order."""
        most = self._pipeline.config.packing.kept_inside(call.max_tokens)
        texts, titles = self._pipeline.reader.readable(call.documents.texts), call.documents.titles
        return [
            passage_text(texts[number], titles[number], block.start, block.end, most)
            for number, one in enumerate(candidates)
            for block in sorted(one.blocks)
        ]

    async def _ask(self, request: "_Request", until: float) -> None:
        """Score the passages of a request, as far as there is time."""
        self.waiting[request] = int(request.tokens.sum())
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(self._settings.upstream_concurrency, len(request.batches))):
                    group.create_task(self._work(request, until))
        finally:
            del self.waiting[request]

    async def _work(self, request: "_Request", until: float) -> None:
        """Send one batch after the other; each waits for its turn among those of other requests."""
        for batch in request.remaining:
            try:
                async with asyncio.timeout(until - time.perf_counter()):
                    await self._free.acquire()
            except TimeoutError:
                return
            try:
                if request.active:
                    await self._send_batch(request, batch, until)
            except UpstreamError as error:
                request.failed(error)
            except TimeoutError:
                return
            finally:
                self._free.release()

    async def _send_batch(self, request: "_Request", batch: Sequence[int], until: float) -> None:
        tokens = int(request.tokens[list(batch)].sum())
        self._in_flight += 1
        began, n_in_flight = time.perf_counter(), self._in_flight
        request.started = request.started or began
        try:
            passages = [request.passages[n] for n in batch]
            request.logits[list(batch)] = await self._upstream.rank(request.query, passages, until, request.instruction)
        finally:
            self._in_flight -= 1
            self.waiting[request] -= tokens
        self.pace.measured(tokens, (time.perf_counter() - began) / n_in_flight)


class _Request:
    """The state of one request: its batches, and the scores known so far.

    Args:
        call: gives the query and the instruction.
        passages: texts.
        tokens: shape (passages,), approximate tokens of each passage with the query.
        order: numbers of the passages, the most urgent first.
        batch: largest number of passages in a batch.
    """

    def __init__(self, call: Call, passages: list[str], tokens: NDArray[np.intp], order: list[int], batch: int) -> None:
        self.query, self.instruction = call.query, call.instruction or ""
        self.passages, self.tokens = passages, tokens
        self.logits = np.full(len(passages), -np.inf, dtype=np.float32)
        self.problem, self.started = "", 0.0
        self.active, self._refused = True, 0
        self.batches = [order[start : start + batch] for start in range(0, len(order), batch)]
        self.remaining: Iterator[Sequence[int]] = iter(self.batches)

    def failed(self, error: UpstreamError) -> None:
        """Note that a batch failed; the other batches are only sent if the reason may have been in this one."""
        self.problem = self.problem or str(error)
        self._refused += 1
        self.active = self.active and error.batch_specific and self._refused < MOST_REFUSED
