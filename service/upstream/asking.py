"""All passages of a request, in batches of bounded size, several at once; large requests and small ones take turns."""

import asyncio
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from service.machine import ASYNCIO, Machine
from service.pace import Pace
from service.upstream.client import Upstream, UpstreamError

MOST_REFUSED = 3  # batches of a request; after so many the reason is not in them


class Pairs(NamedTuple):
    """What is asked.

    Attributes:
        query: as it came.
        passages: texts.
        tokens: shape (passages,), about as many as they cost with the query.
        order: their numbers, the first to be asked about first.
    """

    query: str
    passages: Sequence[str]
    tokens: NDArray[np.intp]
    order: Sequence[int]


class Said(NamedTuple):
    """What came of it.

    Attributes:
        logits: shape (passages,); -inf for those that were not scored.
        problem: why not all were, beside want of time; empty where nothing was wrong.
        queue_seconds: until the first request was sent.
        seconds: from there to the last answer.
    """

    logits: NDArray[np.float32]
    problem: str
    queue_seconds: float
    seconds: float


class Asker:
    """Asks about passages. To be used on one event loop.

    Args:
        upstream: answers.
        batch: passages of a request at most.
        concurrency: requests at once, of all together.
        machine: whose clock it uses, and where it waits.

    Attributes:
        pace: seconds a token, of all requests at once together.
        waiting: tokens that each request in hand still waits for.
    """

    def __init__(self, upstream: Upstream, batch: int, concurrency: int, machine: Machine = ASYNCIO) -> None:
        self.pace = Pace()
        self.waiting: dict[object, int] = {}
        self._upstream, self._batch, self._concurrency, self._machine = upstream, batch, concurrency, machine
        self._free = asyncio.Semaphore(concurrency)
        self._in_flight = 0

    def backlog(self, share: float) -> float:
        """Seconds of work in hand; of each request at most `share`: turns are taken."""
        return sum(min(self.pace.estimate(tokens), share) for tokens in self.waiting.values())

    async def ask(self, pairs: Pairs, until: float) -> Said:
        """Logits of the passages, as far as there is time until then, as the machine's clock counts."""
        asking = _Asking(pairs, self._batch)
        self.waiting[asking] = int(pairs.tokens.sum())
        began = self._machine.now()
        workers = min(self._concurrency, len(asking.batches))
        try:
            await self._machine.together([self._work(asking, until) for _ in range(workers)])
        finally:
            del self.waiting[asking]
        started = asking.started or self._machine.now()
        return Said(asking.logits, asking.problem, started - began, self._machine.now() - started)

    async def _work(self, asking: "_Asking", until: float) -> None:
        """Send batch after batch; each waits for its turn among those of other requests."""
        for batch in asking.left:
            try:
                async with self._machine.timeout(until):
                    await self._free.acquire()
            except TimeoutError:
                return
            try:
                if asking.goes_on:
                    await self._batch_of(asking, batch, until)
            except UpstreamError as error:
                asking.failed(error)
            except TimeoutError:
                return
            finally:
                self._free.release()

    async def _batch_of(self, asking: "_Asking", batch: Sequence[int], until: float) -> None:
        pairs, tokens = asking.pairs, int(asking.pairs.tokens[list(batch)].sum())
        asking.started = asking.started or self._machine.now()
        self._in_flight += 1
        began, beside = self._machine.now(), self._in_flight
        try:
            asking.logits[list(batch)] = await self._upstream.rank(pairs.query, [pairs.passages[n] for n in batch], until)
        finally:
            self._in_flight -= 1
            self.waiting[asking] -= tokens
        self.pace.measured(tokens, (self._machine.now() - began) / beside)


class _Asking:
    """One request's way through: its batches, and what is known by now."""

    def __init__(self, pairs: Pairs, batch: int) -> None:
        self.pairs = pairs
        self.logits = np.full(len(pairs.passages), -np.inf, dtype=np.float32)
        self.problem = ""
        self.started = 0.0
        self.goes_on, self._refused = True, 0
        self.batches = [pairs.order[start : start + batch] for start in range(0, len(pairs.order), batch)]
        self.left: Iterator[Sequence[int]] = iter(self.batches)

    def failed(self, error: UpstreamError) -> None:
        """A batch has no scores; the others are asked about where the reason may have been in that one."""
        self.problem = self.problem or str(error)
        self._refused += 1
        self.goes_on = self.goes_on and error.of_batch and self._refused < MOST_REFUSED
