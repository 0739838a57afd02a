"""The service at work: its models, and what they share: the engine, the threads, the store and the way in."""

import logging
from collections.abc import Callable, Sequence
from typing import Protocol, Self, TypeVar

from prometheus_client import Metric

from keyblock import __version__
from keyblock.bundle import Bundle
from service.engine.encoder import Caps
from service.engine.engine import Engine
from service.errors import RequestError
from service.machine import ASYNCIO, Machine
from service.ranking.admission import Admission, Loads, Place
from service.ranking.cache import DocumentCache
from service.ranking.loading import Opened, open_bundle, served_bundles, upstream_bundle
from service.ranking.model import Model, Shared
from service.ranking.models import Models
from service.ranking.scorers import EngineScorer, UpstreamScorer, VectorScorer
from service.ranking.slicing import SLICES_IN_HAND, Threads
from service.settings import Settings
from service.store.base import DocumentStore
from service.store.library import Library
from service.store.opening import open_store
from service.store.seal import Seal
from service.telemetry.gpus import Gpus
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
DEAD_SECONDS = 10  # until a supervisor has restarted a dead service
UNREADY = "unready"
EDGE_THREADS = 2  # read and write JSON, apart from preparation so that small requests do not wait behind large ones

T = TypeVar("T")


class Health(Protocol):
    """Whether what scores can be asked."""

    @property
    def alive(self) -> bool:
        """Whether it is going to score what is handed in."""

    @property
    def hung(self) -> bool:
        """Whether it does not get on with what it has begun."""

    @property
    def ready(self) -> bool:
        """Whether it is alive and warmed up."""


class Ranker:
    """Everything that serves. `start` it before use, `close` it after.

    Args:
        settings: threads, caps and sizes.
        opened: the bundles that are served, the default one first.
        store: keeps documents by id; none: requests for them are refused.
        upstream: what prepares documents for the settings' upstream, which is a model behind those of the bundles.
        machine: that all of it runs on.
        metrics: of the service; its own where they are left out.
        health: of what scores, where that is not the engine of this process.
        loads: see Admission.

    Attributes:
        health: decides whether requests are let in.
        models: that are served; a reload puts others in their place.
        upstream: of these, the one that asks an upstream; a reload leaves it as it is.
    """

    def __init__(
        self,
        settings: Settings,
        opened: Sequence[Opened],
        store: DocumentStore | None = None,
        upstream: Bundle | None = None,
        machine: Machine = ASYNCIO,
        metrics: Metrics | None = None,
        health: Health | None = None,
        loads: Loads | None = None,
    ) -> None:
        self.settings, self.machine = settings, machine
        self.metrics = metrics or Metrics()
        caps = Caps(settings.token_cap, settings.batch_ms / 1000, settings.hung_seconds)
        self.engine = Engine(caps, self.metrics, settings.score_cache_bytes, machine)
        self.health: Health = health or self.engine
        self.gpus = Gpus(self.metrics)
        self.admission = Admission(settings, self._shortest_backlog, self.metrics, self._fastest, loads)
        self._edge = machine.pool(EDGE_THREADS, "edge")
        self._edge_of_large = machine.pool(EDGE_THREADS, "edge-large")
        self._threads = Threads(max(settings.n_threads, SLICES_IN_HAND), machine)
        seal = Seal(settings.store_key.get_secret_value())
        self.library = None if store is None else Library(store, b"", settings.store_ttl_seconds, self.metrics, seal, machine)
        cache = DocumentCache(settings.cache_bytes)
        self._shared = Shared(settings, self.metrics, cache, self._threads, self.library)
        self.models = Models([])
        models = [self.model(one) for one in opened]
        self.upstream = None if upstream is None else self._asking_upstream(upstream)
        self.serve(Models(models if self.upstream is None else [*models, self.upstream]))

    @classmethod
    def load(cls, settings: Settings) -> Self:
        """Load the bundles and open their graphs and the store.

        Raises BundleError, ProviderError, SessionError or StoreUnavailableError, each one clear line.
        """
        opened = [open_bundle(bundle, settings) for bundle in served_bundles(settings)]
        return cls(settings, opened, open_store(settings), upstream_bundle(settings))

    def model(self, opened: Opened) -> Model:
        """A model that is warmed up from now on, and not served yet. Raises BundleError and EngineDeadError."""
        bundle, graphs, choice = opened.bundle, opened.graphs, opened.choice
        if opened.elsewhere is not None:
            model = Model(bundle, opened.elsewhere, self._shared)
            log.info("%s from %s, whose graphs run in another process", model.name, bundle.path)
            return model
        if graphs is None or choice is None:
            model = Model(bundle, lambda _: VectorScorer(bundle, self.machine.now), self._shared)
            log.info("%s from %s: scores by the vectors of blocks, and runs no graph to score", model.name, bundle.path)
            return model
        model = Model(bundle, lambda _: EngineScorer(self.engine, bundle, graphs, choice), self._shared, opened.seconds)
        log.info("%s from %s, on %s: %s", model.name, bundle.path, choice.provider, choice.why)
        return model

    def _asking_upstream(self, bundle: Bundle) -> Model:
        """The model in front of the settings' upstream."""
        model = Model(bundle, lambda metrics: UpstreamScorer(bundle, self.settings, metrics, self.machine), self._shared)
        log.info("%s, at %s; blocks are cut by the tokenizer of %s", model.name, self.settings.upstream_place, bundle.path)
        return model

    def serve(self, models: Models) -> None:
        """Put these models in the place of those that are served; what is in flight ends with the one that it began with."""
        gone = set(self.models) - set(models)
        if gone:
            self.engine.scores.clear()  # of all models: reloads are rare
        for model in gone:
            self.metrics.forget("build", **build_labels(model))
            if models.get(model.name) is None:
                model.metrics.forget_model()
        for model in models:
            self.metrics.set("build", 1, **build_labels(model))
            model.metrics.set("load", model.load_seconds, phase="load")
            model.metrics.set("fell_back", model.scorer.fell_back)
        if self.library is not None:
            self.library.fingerprint = models.default.fingerprint
        self.models = models

    def _fastest(self) -> float:
        """Seconds that the fastest model takes for a token."""
        return min((model.scorer.pace.seconds for model in self.models), default=0.0)

    def _shortest_backlog(self, share: float) -> float:
        """Seconds that wait for the model with the least to do: before its body is read, a newcomer may be asking that one."""
        return min((model.scorer.backlog(share) for model in self.models), default=0.0)

    async def families(self) -> list[Metric]:
        """All metrics of this process, measured now."""
        self.engine.measure([model.name for model in self.models])
        self.gpus.measure()
        self.metrics.set("ready", self.health.ready)
        self.metrics.set("in_flight", self.admission.load.requests)
        self.metrics.set("wait", self.admission.wait_seconds())
        if self.library is not None:
            await self.library.measure()
        return list(self.metrics.registry.collect())

    def start(self) -> None:
        """Start the model's thread, which warms up before anything is ready."""
        self.engine.start()

    def close(self) -> None:
        """Stop the threads; what still waits fails."""
        self.engine.close()
        for pool in (self._edge, self._edge_of_large):
            pool.shutdown(wait=True, cancel_futures=True)
        self._threads.close()
        if self.library is not None:
            self.library.close()

    async def end(self) -> None:
        """Give back what the event loop holds."""
        for model in self.models:
            await model.scorer.close()

    async def off_loop(self, work: Callable[[], T], *, large: bool) -> T:
        """Do short work off the event loop; that of large requests in threads of its own, so that it holds up no small one."""
        return await self.machine.run(self._edge_of_large if large else self._edge, work)

    def enter(self, n_bytes: int) -> Place:
        """Let a request in that declares so many bytes, of which none is there yet.

        Raises RequestError: 503 when nothing can be served, 429 when there is no room.
        """
        if not self.health.alive:
            raise dead()
        if not self.health.ready:
            self.metrics.add("refused", why="unready")
            raise RequestError(503, "the model is warming up: try again, or another replica", kind=UNREADY, retry_after=1)
        return self.admission.enter(n_bytes, held=0)


def build_labels(model: Model) -> dict[str, str]:
    """What the metrics tell of a model: what it is and how it is computed."""
    return {"version": __version__, "model": model.name, **model.scorer.labels()}


def dead() -> RequestError:
    """The answer where nothing is going to be served until somebody restarts it."""
    return RequestError(503, "the model is not running: try another replica", retry_after=DEAD_SECONDS)
