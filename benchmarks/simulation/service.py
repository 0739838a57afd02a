"""The service put together on a simulated machine: all but HTTP in front, the texts' meaning and the device behind."""

from random import Random
from typing import Any, Self

from benchmarks.simulation.device import Device, Graph
from benchmarks.simulation.machine import SimulatedMachine
from benchmarks.simulation.ranker import MODELS, bundle, combine
from benchmarks.simulation.store import SimulatedStore
from benchmarks.simulation.traffic import Climate
from keyblock.bundle import BundleError
from service.engine.encoder import Caps
from service.engine.errors import EngineError
from service.engine.instance import Graphs
from service.engine.rounds import Rounds
from service.engine.score_cache import ScoreCache
from service.ranking.admission import Admission
from service.ranking.cache import DocumentCache
from service.ranking.model import Model, Shared
from service.ranking.models import Models
from service.ranking.scorers import EngineScorer
from service.ranking.slicing import Threads
from service.settings import Settings
from service.store.library import Library

USUAL = Settings(cache_bytes=0)  # every document is new, but for those by id
EDGE_THREADS = 2
SCORE_BYTES = 1 << 16  # a few requests, so that what is kept is soon pushed out


class Silent:
    """Metrics that nobody reads."""

    def of(self, _model: str) -> Self:
        """See Metrics."""
        return self

    def add(self, *_about: Any, **_labels: Any) -> None:
        """See Metrics."""

    set = observe = forget = forget_model = add


class Service:
    """See `service.ranking.ranker.Ranker`.

    Args:
        machine: that it runs on.
        random: of the device.
        climate: says how large it is.

    Attributes:
        models: that are served.
        edge: threads that read and write requests.
    """

    def __init__(self, machine: SimulatedMachine, random: Random, climate: Climate) -> None:
        self.settings = USUAL.model_copy(update=climate.limits)
        self.metrics: Any = Silent()
        self.rounds = Rounds(self.metrics, machine.now)
        caps = Caps(climate.cap, climate.cap * climate.token_seconds * 2)
        scores = ScoreCache(SCORE_BYTES, self.metrics)
        self.device = Device(machine, random, self.rounds, climate.token_seconds, caps, scores)
        self.admission = Admission(self.settings, self.device.backlog, self.metrics, self._fastest)
        self.store = SimulatedStore(machine)
        self.library = Library(self.store, b"", 0, self.metrics, machine=machine)
        threads = Threads(climate.threads, machine)
        cache = DocumentCache(self.settings.cache_bytes)
        self._shared = Shared(self.settings, self.metrics, cache, threads, self.library)
        self._machine, self._char_seconds = machine, climate.char_seconds
        self.edge = machine.pool(EDGE_THREADS, "edge")
        self.models = Models([])

    async def load(self, salt: int, *, broken: bool = False) -> bool:
        """Serve models of this salt in the place of the others once they are warm; whether that went well."""
        try:
            new = [self._model(name, salt, broken=broken) for name in MODELS]
            for model in new:
                await self._machine.awaited(model.scorer.warmed).by(None)
                model.scorer.warmed.result()
        except (BundleError, EngineError):
            return False
        self.models = Models(new)
        self.library.fingerprint = self.models.default.fingerprint
        return True

    def _model(self, name: str, salt: int, *, broken: bool) -> Model:
        made = bundle(self._machine, name, salt, self._char_seconds, broken=broken)
        learned = made.pipeline.aggregator.learned
        graphs: Any = Graphs(Graph(self.device, salt, states=learned), combine=combine if learned else None)
        engine: Any = self.device
        return Model(made, lambda _: EngineScorer(engine, made, graphs, None), self._shared)

    def _fastest(self) -> float:
        return min((model.scorer.pace.seconds for model in self.models), default=0.0)
