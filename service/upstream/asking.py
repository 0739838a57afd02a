"""Sends all passages of a request in batches of bounded size, several at once; large and small requests take turns."""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.pace import Pace, SecondsAhead, ahead_in_turns
from service.upstream.client import Upstream, UpstreamError

MOST_REFUSED = 3  # refused batches of a request, after which its other batches are not sent


class Pairs(NamedTuple):
    """A query with its passages.

    Attributes:
        query: as the client sent it.
        passages: texts.
        tokens: shape (passages,), approximate tokens of each passage with the query.
        order: numbers of the passages, the most urgent first.
        instruction: the task; empty for none.
    """

    query: str
    passages: Sequence[str]
    tokens: NDArray[np.intp]
    order: Sequence[int]
    instruction: str = ""


class PassageScores(NamedTuple):
    """The scores of passages.

    Attributes:
        logits: shape (passages,); -inf for those that were not scored.
        problem: why passages were not scored, other than for lack of time; empty if nothing went wrong.
        queue_seconds: until the first request was sent.
        seconds: from there to the last answer.
    """

    logits: NDArray[np.float32]
    problem: str
    queue_seconds: float
    seconds: float


class Asker:
    """Scores passages with the upstream. To be used on one event loop.

    Args:
        upstream: scores the batches.
        batch: largest number of passages in a batch.
        concurrency: batches under way at once, of all requests together.

    Attributes:
        pace: seconds per token, with all batches under way at once.
        waiting: tokens for which each request in hand still waits.
    """

    def __init__(self, upstream: Upstream, batch: int, concurrency: int) -> None:
        self.pace = Pace()
        self.waiting: dict[object, int] = {}
        self._upstream, self._batch, self._concurrency = upstream, batch, concurrency
        self._free = asyncio.Semaphore(concurrency)
        self._in_flight = 0

    def backlog(self) -> SecondsAhead:
        """The work in hand at this moment."""
        return ahead_in_turns([self.pace.estimate(tokens) for tokens in self.waiting.values()])

    async def ask(self, pairs: Pairs, until: float) -> PassageScores:
        """Score the passages, as far as there is time until the deadline, in seconds of `time.perf_counter`."""
        progress = _Progress(pairs, self._batch)
        self.waiting[progress] = int(pairs.tokens.sum())
        began = time.perf_counter()
        workers = min(self._concurrency, len(progress.batches))
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(workers):
                    group.create_task(self._work(progress, until))
        finally:
            del self.waiting[progress]
        started = progress.started or time.perf_counter()
        return PassageScores(progress.logits, progress.problem, started - began, time.perf_counter() - started)

    async def _work(self, progress: "_Progress", until: float) -> None:
        """Send one batch after the other; each waits for its turn among those of other requests."""
        for batch in progress.remaining:
            try:
                async with asyncio.timeout(until - time.perf_counter()):
                    await self._free.acquire()
            except TimeoutError:
                return
            try:
                if progress.active:
                    await self._send_batch(progress, batch, until)
            except UpstreamError as error:
                progress.failed(error)
            except TimeoutError:
                return
            finally:
                self._free.release()

    async def _send_batch(self, progress: "_Progress", batch: Sequence[int], until: float) -> None:
        pairs, tokens = progress.pairs, int(progress.pairs.tokens[list(batch)].sum())
        progress.started = progress.started or time.perf_counter()
        self._in_flight += 1
        began, n_in_flight = time.perf_counter(), self._in_flight
        try:
            passages = [pairs.passages[n] for n in batch]
            progress.logits[list(batch)] = await self._upstream.rank(pairs.query, passages, until, pairs.instruction)
        finally:
            self._in_flight -= 1
            self.waiting[progress] -= tokens
        self.pace.measured(tokens, (time.perf_counter() - began) / n_in_flight)


class _Progress:
    """The state of one request: its batches, and the scores known so far."""

    def __init__(self, pairs: Pairs, batch: int) -> None:
        self.pairs = pairs
        self.logits = np.full(len(pairs.passages), -np.inf, dtype=np.float32)
        self.problem = ""
        self.started = 0.0
        self.active, self._refused = True, 0
        self.batches = [pairs.order[start : start + batch] for start in range(0, len(pairs.order), batch)]
        self.remaining: Iterator[Sequence[int]] = iter(self.batches)

    def failed(self, error: UpstreamError) -> None:
        """Note that a batch failed; the other batches are only sent if the reason may have been in this one."""
        self.problem = self.problem or str(error)
        self._refused += 1
        self.active = self.active and error.batch_specific and self._refused < MOST_REFUSED
