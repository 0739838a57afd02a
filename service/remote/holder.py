"""A replica of the model: bundles' graphs on one model thread, whose batches all replicas of preparation share."""

import asyncio
import logging
import os
import socket
from collections import OrderedDict
from pathlib import Path

import numpy as np

from keyblock.bundle import BundleError, load_bundle
from keyblock.runtime.providers import ProviderError
from keyblock.runtime.session import SessionError
from service.engine.encoder import Caps
from service.engine.engine import Engine
from service.engine.errors import EngineDeadError, EngineError
from service.engine.instance import Turn
from service.engine.jobs import Scored
from service.machine import ASYNCIO
from service.ranking.loading import Opened, open_bundle, served_bundles
from service.ranking.scorers import EngineScorer
from service.remote.wire import Asked, Described, Named, Reply, Report, named, read
from service.settings import Settings
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
CANNOT_OPEN = (BundleError, ProviderError, SessionError, OSError)


class Holder:
    """Scores sequences for replicas of preparation, once it is `warm`.

    While one version of an application replaces another, the replicas of each also need the bundles of the other. Such a bundle is
    opened at its first use, and the least recently used one is given up when there are more of them than bundles of its own.

    Args:
        settings: its bundles, and how to run graphs.

    Attributes:
        own: the scorers of its own bundles.
        metrics: of the model's thread.

    Raises BundleError, ProviderError and SessionError, each one clear line.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._id = f"{socket.gethostname()}:{os.getpid()}"
        caps = Caps(settings.token_cap, settings.batch_ms / 1000, settings.hung_seconds)
        self.metrics = Metrics()
        self.engine = Engine(caps, self.metrics, settings.score_cache_bytes)
        opened = [open_bundle(bundle, settings) for bundle in served_bundles(settings)]
        self.own = {named(one.bundle): scorer for one in opened if (scorer := self._scorer(one)) is not None}
        self._others: OrderedDict[Named, asyncio.Task[EngineScorer]] = OrderedDict()
        self.engine.start()

    def warm(self) -> None:
        """Wait until its own bundles are warm. Raises EngineDeadError."""
        for scorer in self.own.values():
            scorer.warmed.result()

    def close(self) -> None:
        """Stop after the batch in hand."""
        self.engine.close()

    def report(self) -> Report:
        """The state of this replica."""
        others = {name: task.result() for name, task in self._others.items() if task.done() and not _failed(task)}
        paces = {name: scorer.pace.seconds for name, scorer in (self.own | others).items()}
        return Report(self._id, np.asarray(self.engine.waiting(), np.float32), paces, self.engine.ready)

    async def describe(self, name: Named) -> Described:
        """Describe a bundle; opens it if necessary. Raises EngineError."""
        scorer = await self._open(name)
        return Described(scorer.labels(), scorer.describe(self._settings), scorer.fell_back)

    async def score(self, name: Named, asked: Asked) -> Reply:
        """Score sequences with a bundle's graphs; cancelling the await drops those that wait."""
        turn = Turn(None if asked.seconds is None else ASYNCIO.now() + asked.seconds, asked.order, asked.priority)
        try:
            scorer = await self._open(name)
        except (EngineError, EngineDeadError) as error:
            return Reply(self.report(), None, str(error), elsewhere=True)
        try:
            scored = await _scored(scorer, asked, turn)
            return Reply(self.report(), scored)  # the report is made last, since the receiver believes the latest one
        except (EngineError, EngineDeadError) as error:
            return Reply(self.report(), None, str(error), elsewhere=isinstance(error, EngineDeadError))

    async def _open(self, name: Named) -> EngineScorer:
        """The scorer of this bundle. Raises EngineError if it cannot be opened, and EngineDeadError."""
        if (opened := self.own.get(name)) is not None:
            return opened
        if name not in self._others or _failed(self._others[name]):
            self._others[name] = asyncio.create_task(self._open_other(name))
        self._others.move_to_end(name)
        if len(self._others) > max(len(self.own), 1):
            self._others.popitem(last=False)
        return await asyncio.shield(self._others[name])  # shielded: the first caller may leave while others wait for it too

    async def _open_other(self, name: Named) -> EngineScorer:
        log.info("%s belongs to another version of the application, and is opened for it", name.path)
        try:
            scorer = self._scorer(await asyncio.to_thread(self._load, name))
        except CANNOT_OPEN as error:
            raise EngineError(f"the model cannot be opened: {' '.join(str(error).split())}") from None
        if scorer is None:
            raise EngineError(f"{name.path} has no graph to score with")
        await asyncio.wrap_future(scorer.warmed)
        return scorer

    def _load(self, name: Named) -> Opened:
        """Load a bundle. Raises BundleError if the directory holds another bundle by now, and the errors of opening it."""
        bundle = load_bundle(Path(name.path))
        if named(bundle) != name:
            raise BundleError(f"{name.path} holds another bundle by now: give each version a directory of its own")
        return open_bundle(bundle, self._settings)

    def _scorer(self, opened: Opened) -> EngineScorer | None:
        """The scorer; None for a bundle without graphs, which preparation scores by its vectors. Raises EngineDeadError."""
        if opened.graphs is None or opened.choice is None:
            return None
        return EngineScorer(self.engine, opened.bundle, opened.graphs, opened.choice)


async def _scored(scorer: EngineScorer, asked: Asked, turn: Turn) -> Scored:
    documents = read(asked.sequences)
    if asked.blocks:
        return await scorer.instance.choose([packed for document in documents for packed in document], turn)
    return await scorer.instance.score(documents, turn, marks=asked.marks)


def _failed(task: "asyncio.Task[EngineScorer]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
