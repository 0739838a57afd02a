"""Builds the service on a simulated machine. HTTP, texts, device, files and other servers are not real."""

import importlib
from types import SimpleNamespace
from typing import Any, Self

from benchmarks.simulation.device import Device, Graph
from benchmarks.simulation.machine import SimulatedMachine
from benchmarks.simulation.ranker import MODELS, UPSTREAM, UPSTREAM_SALT, bundle, combine, salt_of
from benchmarks.simulation.traffic import Climate
from keyblock.runtime.providers import Choice, Provider
from service.queue.graphs import Graphs
from service.ranking.loading import LoadedBundle
from service.ranking.ranker import Ranker
from service.ranking.reload import Reloader
from service.settings import Settings, UpstreamKind, UpstreamScores
from service.store.base import DocumentStore

importlib.import_module("service.upstream.scorer")  # which the service imports late, and a machine stands in for what it finds
READ_SECONDS = 0.01
SCORE_BYTES = 1 << 16  # a few requests, so that entries are soon evicted
USUAL = Settings(
    cache_bytes=SCORE_BYTES, score_cache_bytes=SCORE_BYTES, upstream_scores=UpstreamScores.LOGIT, upstream_model=UPSTREAM
)
CHOICE = Choice(Provider.CPU, [], "simulated")


class Silent:
    """Metrics that are not recorded."""

    def of(self, _model: str) -> Self:
        """See Metrics."""
        return self

    def add(self, *_about: Any, **_labels: Any) -> None:
        """See Metrics."""

    set = observe = forget = forget_model = add


class Files:
    """The bundles on the simulated disk.

    Args:
        machine: machine that reads the files.
        device: device that runs the graphs.
        climate: how fast a text is prepared, and how batches follow each other.

    Attributes:
        salts: salts of the bundles, by name; a later one is larger.
        broken: whether a bundle's files differ from its manifest.
    """

    def __init__(self, machine: SimulatedMachine, device: Device, climate: Climate) -> None:
        self.salts = {name: salt_of(name, 1) for name in MODELS}
        self.broken = False
        self._machine, self._device, self._climate = machine, device, climate

    def read(self, _settings: Settings) -> list[Any]:
        """See `service.ranking.loading.served_bundles`."""
        found = []
        for name in MODELS:
            self._machine.spend(READ_SECONDS)
            if name in self.salts:
                found.append(self.bundle(name, self.salts[name]))
        return found

    def bundle(self, name: str, salt: int) -> Any:
        """A bundle."""
        return bundle(self._machine, name, salt, self._climate.char_seconds, broken=self.broken)

    def opened(self, one: Any, _settings: Settings) -> LoadedBundle:
        """See `service.ranking.loading.open_bundle`."""
        self._machine.spend(READ_SECONDS)
        learned = one.pipeline.aggregator.learned
        graph = Graph(self._device, one.salt, states=learned)
        return LoadedBundle(one, Graphs(graph, combine=combine if learned else None, ahead=self._climate.ahead), CHOICE)


class Service:
    """A process of the service, and its successors.

    Args:
        machine: machine that the service runs on.
        device: device that runs the graphs.
        climate: sizes and limits of the service.
        store: of documents.

    Attributes:
        files: files of the bundles.
        ranker, reloader: those of the running process.
        listens: whether requests are admitted.
    """

    def __init__(self, machine: SimulatedMachine, device: Device, climate: Climate, store: DocumentStore) -> None:
        upstream = (
            {"upstream": "http://upstream/rerank", "upstream_kind": UpstreamKind(climate.upstream)} if climate.upstream else {}
        )
        self.settings = USUAL.model_copy(update=climate.limits | upstream | {"threads": climate.threads})
        self.files = Files(machine, device, climate)
        self.listens = False
        self._store = store

    def start(self) -> None:
        """Start a process, as `service.app` does."""
        settings, metrics = self.settings, Silent()
        opened = [self.files.opened(one, settings) for one in self.files.read(settings)]
        upstream = self.files.bundle(UPSTREAM, UPSTREAM_SALT) if settings.upstream else None
        self.ranker = Ranker(settings, opened, self._store, upstream, metrics)  # type: ignore[arg-type]
        self.ranker.start()
        state: Any = SimpleNamespace(keyring=None)
        self.reloader = Reloader(self.ranker, state, self.files.read, self.files.opened)
        self.listens = True

    async def end(self) -> None:
        """End the process, as `service.app` does."""
        await self.ranker.end()
        self.ranker.close()
        self.reloader.close()
