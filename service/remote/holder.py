"""A replica of the model: bundles' graphs on one model thread, whose batches all replicas of preparation share."""

import asyncio
import logging
import os
import socket
import time
from collections import OrderedDict
from itertools import chain
from pathlib import Path

import numpy as np

from keyblock.bundle import BundleError, load_bundle
from keyblock.runtime.providers import ProviderError
from keyblock.runtime.session import SessionError
from service.queue.batch import Caps
from service.queue.graphs import GraphScorer, Priority
from service.queue.job import ModelDeadError, ModelError
from service.queue.worker import Worker
from service.ranking.loading import LoadedBundle, open_bundle, served_bundles
from service.remote.wire import Described, Named, Reply, Report, ScoreRequest, named, read
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
        self.worker = Worker(caps, self.metrics, settings.score_cache_bytes)
        opened = [open_bundle(bundle, settings) for bundle in served_bundles(settings)]
        self.own = {named(one.bundle): scorer for one in opened if (scorer := self._scorer(one)) is not None}
        self._others: OrderedDict[Named, asyncio.Task[GraphScorer]] = OrderedDict()
        self.worker.start()

    def warm(self) -> None:
        """Wait until its own bundles are warm. Raises ModelDeadError."""
        for scorer in self.own.values():
            scorer.warmed.result()

    def close(self) -> None:
        """Stop after the batch in hand."""
        self.worker.close()

    async def report(self) -> Report:
        """The state of this replica."""
        others = {name: task.result() for name, task in self._others.items() if task.done() and not _failed(task)}
        paces = {name: scorer.pace.seconds for name, scorer in (self.own | others).items()}
        return Report(self._id, np.asarray(self.worker.waiting(), np.float32), paces, self.worker.ready)

    async def describe(self, name: Named) -> Described:
        """Describe a bundle; opens it if necessary. Raises ModelError."""
        scorer = await self._open(name)
        return Described(scorer.labels(), scorer.describe(self._settings), scorer.fell_back)

    async def score(self, name: Named, asked: ScoreRequest) -> Reply:
        """Score sequences with a bundle's graphs; cancelling the await drops those that wait."""
        priority = Priority(None if asked.seconds is None else time.perf_counter() + asked.seconds, asked.order, asked.level)
        try:
            scorer = await self._open(name)
        except (ModelError, ModelDeadError) as error:
            return Reply(await self.report(), None, str(error), elsewhere=True)
        try:
            documents = read(asked.sequences)
            if asked.blocks:
                scored = await scorer.choose(list(chain.from_iterable(documents)), priority)
            else:
                scored = await scorer.score_documents(documents, priority, marks=asked.marks)
            return Reply(await self.report(), scored)  # the report is made last, since the receiver believes the latest one
        except (ModelError, ModelDeadError) as error:
            return Reply(await self.report(), None, str(error), elsewhere=isinstance(error, ModelDeadError))

    async def _open(self, name: Named) -> GraphScorer:
        """The scorer of this bundle. Raises ModelError if it cannot be opened, and ModelDeadError."""
        if (opened := self.own.get(name)) is not None:
            return opened
        if name not in self._others or _failed(self._others[name]):
            self._others[name] = asyncio.create_task(self._open_other(name))
        self._others.move_to_end(name)
        if len(self._others) > max(len(self.own), 1):
            self._others.popitem(last=False)
        return await asyncio.shield(self._others[name])  # shielded: the first caller may leave while others wait for it too

    async def _open_other(self, name: Named) -> GraphScorer:
        log.info("%s belongs to another version of the application, and is opened for it", name.path)
        try:
            scorer = self._scorer(await asyncio.to_thread(self._load, name))
        except CANNOT_OPEN as error:
            raise ModelError(f"the model cannot be opened: {' '.join(str(error).split())}") from None
        if scorer is None:
            raise ModelError(f"{name.path} has no graph to score with")
        await asyncio.wrap_future(scorer.warmed)
        return scorer

    def _load(self, name: Named) -> LoadedBundle:
        """Load a bundle. Raises BundleError if the directory holds another bundle by now, and the errors of opening it."""
        bundle = load_bundle(Path(name.path))
        if named(bundle) != name:
            raise BundleError(f"{name.path} holds another bundle by now: give each version a directory of its own")
        return open_bundle(bundle, self._settings)

    def _scorer(self, opened: LoadedBundle) -> GraphScorer | None:
        """The scorer; None for a bundle without graphs, which preparation scores by its vectors. Raises ModelDeadError."""
        if opened.graphs is None or opened.choice is None:
            return None
        return GraphScorer(self.worker, opened.bundle, opened.graphs, opened.choice)


def _failed(task: "asyncio.Task[GraphScorer]") -> bool:
    return task.done() and (task.cancelled() or task.exception() is not None)
