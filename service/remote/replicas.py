"""The replicas of the model from the view of a replica of preparation, and a scorer that sends them its sequences."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from keyblock.bundle import Bundle
from keyblock.packing import Packed
from keyblock.ranking.order import Candidate
from service.call import Call
from service.pace import Pace, SecondsAhead, ahead_in_turns
from service.queue.graphs import USUAL, Priority, Scorer
from service.queue.job import ModelDeadError, ModelError, Scored, unscored
from service.ranking.loading import LoadedBundle
from service.remote.wire import Described, Named, Reply, Report, ScoreRequest, named, written
from service.settings import Settings

log = logging.getLogger(__name__)
Ask = Callable[..., Coroutine[Any, Any, Any]]
"""Calls a method of `Holder` on some replica, with its arguments. Raises GoneError. Cancelling it cancels the call."""

PAUSE_SECONDS = 0.5  # between two requests for a report
READY_SECONDS = 5.0  # without an answer from any replica, after which no request is admitted
FRESH_SECONDS = 2.0  # for which a report is believed
TRIES = 4  # replicas that a call is sent to while they go


class GoneError(Exception):
    """The replica that had the call is gone; another replica may answer it."""


class Replicas:
    """Calls the replicas, and keeps their last reports. To be used on one event loop.

    Args:
        ask: calls one of them.
        hung_seconds: without an answer from any replica, after which none is expected any more.

    Attributes:
        hung: always False: a replica whose model hangs reports that itself, to the process that can restart it.
    """

    hung = False

    def __init__(self, ask: Ask, hung_seconds: float) -> None:
        self._ask, self._hung_seconds = ask, hung_seconds
        self._last_report, self._last_ready = time.perf_counter(), -math.inf
        self._reports: dict[str, tuple[float, Report]] = {}
        self._calls: dict[object, float] = {}
        self._paces: dict[Named, Pace] = {}
        self._trip = Pace()
        self._listening: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether a replica may still answer."""
        return time.perf_counter() - self._last_report < self._hung_seconds

    @property
    def ready(self) -> bool:
        """Whether a warm replica has answered a moment ago."""
        return time.perf_counter() - self._last_ready < READY_SECONDS

    def listen(self) -> None:
        """Start to request reports regularly."""
        self._listening = asyncio.create_task(self._listen())

    async def close(self) -> None:
        """Stop to request reports."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    def pace(self, name: Named) -> Pace:
        """Seconds per token of a bundle, as reported."""
        return self._paces.setdefault(name, Pace())

    def backlog(self) -> SecondsAhead:
        """The work that waits for a replica at this moment; calls take turns.

        That is the work that replicas have reported, from all callers, or the work sent from here, whichever is more.
        """
        now = time.perf_counter()
        fresh = [report for at, report in self._reports.values() if now - at < FRESH_SECONDS]
        reported = ahead_in_turns([seconds for report in fresh for seconds in report.waiting.tolist()])
        sent, number = ahead_in_turns(list(self._calls.values())), max(len(fresh), 1)
        return lambda own: max(reported(own), sent(own)) / number

    def record(self, report: Report) -> None:
        """Keep the report of a replica."""
        self._last_report = now = time.perf_counter()
        if report.ready:
            self._last_ready = now
        self._reports[report.replica] = now, report
        for replica in [replica for replica, (at, _) in self._reports.items() if now - at > READY_SECONDS]:
            del self._reports[replica]
        for name, seconds in report.paces.items():
            self.pace(name).measured(1, seconds)

    async def describe(self, name: Named) -> Described:
        """The description of a bundle; waits for the first replica. Raises ModelError if it cannot be opened."""
        described: Described = await self._ask("describe", name)
        self.record(await self._ask("report"))
        return described

    async def score(self, name: Named, asked: ScoreRequest, until: float | None) -> Scored | None:
        """The scores of a replica; None at the deadline. Raises ModelError, and ModelDeadError if none answers."""
        call = object()
        self._calls[call] = self.pace(name).estimate(len(asked.sequences.ids))
        try:
            for _ in range(TRIES):
                with suppress(GoneError):
                    began = time.perf_counter()
                    seconds = None if until is None else until - began - self._trip.seconds
                    reply = await self._reply(self._ask("score", name, asked._replace(seconds=seconds)), until)
                    if reply is None:
                        return None
                    self.record(reply.report)
                    if reply.scored is not None:
                        return self._with_trip(reply.scored, time.perf_counter() - began)
                    if not reply.elsewhere:
                        raise ModelError(reply.problem)
                    log.warning("replica %s: %s", reply.report.replica, reply.problem)
        finally:
            del self._calls[call]
        raise ModelDeadError("no replica of the model answers")

    def _with_trip(self, scored: Scored, seconds: float) -> Scored:
        """The scores, with the time on the way counted as waiting."""
        self._trip.measured(1, max(seconds - scored.queue_seconds - scored.model_seconds, 0.0))
        return scored._replace(queue_seconds=max(seconds - scored.model_seconds, 0.0))

    async def _reply(self, asking: Coroutine[Any, Any, Reply], until: float | None) -> Reply | None:
        """The reply; None at the deadline. Raises GoneError, and ModelDeadError once no replica is alive."""
        task = asyncio.create_task(asking)
        try:
            while not task.done():
                if not self.alive:
                    raise ModelDeadError("no replica of the model answers")
                left = PAUSE_SECONDS if until is None else min(until - time.perf_counter(), PAUSE_SECONDS)
                if left <= 0:
                    return None
                await asyncio.wait([task], timeout=left)
            return task.result()
        finally:
            task.cancel()

    async def _listen(self) -> None:
        while True:
            try:
                async with asyncio.timeout(FRESH_SECONDS):  # well before READY_SECONDS: one that dies is waited for
                    self.record(await self._ask("report"))
            except (GoneError, TimeoutError):
                pass
            except Exception as error:  # such as the report of a replica of another version
                log.warning("a replica's report cannot be read: %r", error)
            await asyncio.sleep(PAUSE_SECONDS)


async def opened(bundle: Bundle, replicas: Replicas) -> LoadedBundle:
    """A bundle whose graphs run elsewhere; a bundle without graphs scores in this process. Raises ModelError."""
    if bundle.manifest.graph is None:
        return LoadedBundle(bundle)
    scorer = RemoteScorer(replicas, bundle, await replicas.describe(named(bundle)))
    labels = scorer.labels()
    where = labels["provider"], labels["precision"]
    log.info("%s from %s, whose graphs run in another process, on %s in %s", bundle.manifest.name, bundle.path, *where)
    return LoadedBundle(bundle, elsewhere=scorer)


class RemoteScorer(Scorer):
    """A bundle's graphs on the model's replicas.

    Args:
        replicas: have the bundle open.
        bundle: the graphs' bundle.
        described: its description by a replica.
    """

    def __init__(self, replicas: Replicas, bundle: Bundle, described: Described) -> None:
        super().__init__()
        self._replicas, self._described, self._name = replicas, described, named(bundle)
        self.pace = replicas.pace(self._name)
        self.marks, self.fell_back = bundle.graph.marks, described.fell_back

    def backlog(self) -> SecondsAhead:
        """See Scorer: the backlog of a replica, over all models."""
        return self._replicas.backlog()

    async def score(self, call: Call, candidates: Sequence[Candidate], priority: Priority = USUAL) -> Scored:
        """See Scorer."""
        documents = [candidate.sequences for candidate in candidates]
        if not any(documents):
            return unscored(len(documents))
        marks = call.asked.reads_texts and self.marks
        asked = ScoreRequest(written(documents), None, priority.order, priority.level, marks=marks)
        return await self._scored(asked, priority.until, len(documents))

    async def choose(self, packed: Sequence[Packed], priority: Priority = USUAL) -> Scored:
        """See Scorer."""
        if not packed:
            return unscored(0)
        asked = ScoreRequest(written([packed]), None, None, priority.level, blocks=True)
        return await self._scored(asked, priority.until, len(packed))

    async def _scored(self, asked: ScoreRequest, until: float | None, number: int) -> Scored:
        began = time.perf_counter()
        scored = await self._replicas.score(self._name, asked, until)
        return unscored(number, time.perf_counter() - began) if scored is None else scored

    def labels(self) -> dict[str, str]:
        """See Scorer."""
        return self._described.labels

    def describe(self, settings: Settings) -> dict[str, Any]:
        """See Scorer."""
        return self._described.about

    async def close(self) -> None:
        """See Scorer."""
        await self._replicas.close()
