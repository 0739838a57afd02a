"""The replicas of the model as one replica of preparation knows them, and a scorer that hands them its sequences."""

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Sequence, Set
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import numpy as np

from keyblock.bundle import Bundle
from keyblock.order import Candidate
from keyblock.packing import Packed
from service.call import Call
from service.engine.errors import EngineDeadError, EngineError
from service.engine.instance import ANY_TURN, Turn
from service.engine.jobs import Scored
from service.machine import ASYNCIO, Clock
from service.pace import Pace
from service.ranking.loading import Opened
from service.remote.wire import Asked, Described, Named, Reply, Report, named, written
from service.settings import Settings

log = logging.getLogger(__name__)
Ask = Callable[..., Coroutine[Any, Any, Any]]
"""From a method of `Holder` and its arguments to what some replica returns; raises GoneError. Cancelling it cancels the call."""

PAUSE_SECONDS = 0.5  # between two questions how they are
READY_SECONDS = 5.0  # without a word from any of them, after which no request is let in
FRESH_SECONDS = 2.0  # that a report is believed
TRIES = 4  # replicas that a call is handed to while they go


class GoneError(Exception):
    """The replica that had the call is gone; another one may answer it."""


class Replicas:
    """Asks them, and keeps what they last said of themselves. To be used on one event loop.

    Args:
        ask: calls one of them.
        hung_seconds: without a word from any of them, after which none is expected to answer any more.
        clock: measures.

    Attributes:
        hung: never: a replica whose model hangs says so itself, to whoever can restart it.
    """

    hung = False

    def __init__(self, ask: Ask, hung_seconds: float, clock: Clock = ASYNCIO.now) -> None:
        self._ask, self._hung_seconds, self._clock = ask, hung_seconds, clock
        self._heard, self._heard_ready = clock(), -math.inf
        self._reports: dict[str, tuple[float, Report]] = {}
        self._open: Set[Named] = frozenset()
        self._in_hand: dict[object, float] = {}
        self._paces: dict[Named, Pace] = {}
        self._trip = Pace()
        self._listening: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """Whether one of them may still answer."""
        return self._clock() - self._heard < self._hung_seconds

    @property
    def ready(self) -> bool:
        """Whether one of them that is warm has answered a moment ago."""
        return self._clock() - self._heard_ready < READY_SECONDS

    def listen(self) -> None:
        """Ask how they are from now on, again and again."""
        self._listening = asyncio.create_task(self._listen())

    async def close(self) -> None:
        """Ask no more."""
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)

    def pace(self, name: Named) -> Pace:
        """Seconds a token of a bundle, as they say."""
        return self._paces.setdefault(name, Pace())

    def backlog(self, share: float) -> float:
        """Seconds of work that wait for a replica; of each call at most `share`: turns are taken.

        That is what replicas said that they have, of all who ask, or what is asked from here, whichever is more.
        """
        now = self._clock()
        fresh = [report for at, report in self._reports.values() if now - at < FRESH_SECONDS]
        said = sum(float(np.minimum(report.waiting, share).sum()) for report in fresh) / max(len(fresh), 1)
        return max(said, sum(min(seconds, share) for seconds in self._in_hand.values()) / max(len(fresh), 1))

    def hold(self, names: Set[Named]) -> bool:
        """Whether the one that has said something last has all these bundles open."""
        return names <= self._open

    def hear(self, report: Report) -> None:
        """Keep what one of them says of itself."""
        self._heard = now = self._clock()
        self._open = report.paces.keys()
        if report.ready:
            self._heard_ready = now
        self._reports[report.replica] = now, report
        for replica in [replica for replica, (at, _) in self._reports.items() if now - at > READY_SECONDS]:
            del self._reports[replica]
        for name, seconds in report.paces.items():
            self.pace(name).measured(1, seconds)

    async def describe(self, name: Named) -> Described:
        """What they say of a bundle; waits for the first of them. Raises EngineError where it cannot be opened."""
        described: Described = await self._ask("describe", name)
        self.hear(await self._ask("report"))
        return described

    async def score(self, name: Named, asked: Asked, until: float | None) -> Scored | None:
        """What one of them says; None where time is up first. Raises EngineError, and EngineDeadError where none answers."""
        call = object()
        self._in_hand[call] = self.pace(name).estimate(len(asked.sequences.ids))
        try:
            for _ in range(TRIES):
                with suppress(GoneError):
                    began = self._clock()
                    seconds = None if until is None else until - began - self._trip.seconds
                    reply = await self._reply(self._ask("score", name, asked._replace(seconds=seconds)), until)
                    if reply is None:
                        return None
                    self.hear(reply.report)
                    if reply.scored is not None:
                        return self._with_trip(reply.scored, self._clock() - began)
                    if not reply.elsewhere:
                        raise EngineError(reply.problem)
                    log.warning("replica %s: %s", reply.report.replica, reply.problem)
        finally:
            del self._in_hand[call]
        raise EngineDeadError("no replica of the model answers")

    def _with_trip(self, scored: Scored, seconds: float) -> Scored:
        """The same, the way there and back counted as waiting."""
        self._trip.measured(1, max(seconds - scored.queue_seconds - scored.model_seconds, 0.0))
        return scored._replace(queue_seconds=max(seconds - scored.model_seconds, 0.0))

    async def _reply(self, asking: Coroutine[Any, Any, Reply], until: float | None) -> Reply | None:
        """The reply; None where time is up first. Raises GoneError, and EngineDeadError once none is alive."""
        task = asyncio.create_task(asking)
        try:
            while not task.done():
                if not self.alive:
                    raise EngineDeadError("no replica of the model answers")
                left = PAUSE_SECONDS if until is None else min(until - self._clock(), PAUSE_SECONDS)
                if left <= 0:
                    return None
                await asyncio.wait([task], timeout=left)
            return task.result()
        finally:
            task.cancel()

    async def _listen(self) -> None:
        while True:
            with suppress(GoneError, TimeoutError):
                async with asyncio.timeout(READY_SECONDS):
                    self.hear(await self._ask("report"))
            await asyncio.sleep(PAUSE_SECONDS)


async def opened(bundle: Bundle, replicas: Replicas) -> Opened:
    """A bundle whose graphs run elsewhere; one without graphs scores where it is prepared. Raises EngineError."""
    if bundle.manifest.graph is None:
        return Opened(bundle, None, None)
    described = await replicas.describe(named(bundle))
    return Opened(bundle, None, None, elsewhere=lambda _: RemoteScorer(replicas, bundle, described))


class RemoteScorer:
    """A bundle's graphs on the model's replicas: see `service.ranking.scorers.Scorer`.

    Args:
        replicas: that have it open.
        bundle: whose graphs they are.
        described: what they say of them.

    Attributes:
        name: of the bundle.
    """

    stage, reads_texts = "model", False

    def __init__(self, replicas: Replicas, bundle: Bundle, described: Described) -> None:
        self.marks = bundle.graph.marks
        self.warmed: Future[None] = Future()
        self.warmed.set_result(None)
        self._replicas, self._described, self.name = replicas, described, named(bundle)

    @property
    def pace(self) -> Pace:
        """See Scorer."""
        return self._replicas.pace(self.name)

    @property
    def fell_back(self) -> bool:
        """See Scorer."""
        return self._described.fell_back

    def backlog(self, share: float) -> float:
        """See Scorer: a replica's, of all models."""
        return self._replicas.backlog(share)

    async def score(self, call: Call, candidates: Sequence[Candidate], turn: Turn = ANY_TURN) -> Scored:
        """See Scorer."""
        documents = [candidate.sequences for candidate in candidates]
        if not any(documents):
            return _unscored(len(documents), 0.0)
        marks = call.asked.reads_texts and self.marks
        asked = Asked(written(documents), None, turn.order, turn.priority, marks=marks)
        return await self._scored(asked, turn.until, len(documents))

    async def choose(self, packed: Sequence[Packed], turn: Turn = ANY_TURN) -> Scored:
        """See Scorer."""
        if not packed:
            return Scored(np.zeros(0, np.float32), 0.0, 0.0)
        return await self._scored(Asked(written([packed]), None, None, turn.priority, blocks=True), turn.until, len(packed))

    async def _scored(self, asked: Asked, until: float | None, number: int) -> Scored:
        began = time.perf_counter()
        scored = await self._replicas.score(self.name, asked, until)
        return _unscored(number, time.perf_counter() - began) if scored is None else scored

    def labels(self) -> dict[str, str]:
        """See Scorer."""
        return self._described.labels

    def describe(self, settings: Settings) -> dict[str, Any]:
        """See Scorer."""
        return self._described.about

    async def close(self) -> None:
        """See Scorer."""
        await self._replicas.close()


def _unscored(number: int, seconds: float) -> Scored:
    """Of so many, none was scored in these seconds."""
    return Scored(np.full(number, -np.inf, np.float32), seconds, 0.0)
