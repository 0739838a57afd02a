"""The service itself: its models, and everything that they share: the threads, the store and admission."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, Self, TypeVar

from keyblock import __version__
from keyblock.bundle import Bundle
from keyblock.ranking.warnings import LONGEST_SHOWN, first_few
from service.call import Call
from service.errors import RequestError
from service.lru import DocumentCache
from service.pace import SecondsAhead, nothing_ahead
from service.queue.batch import Caps
from service.queue.worker import Worker
from service.ranking.admission import Admission, Place
from service.ranking.loading import LoadedBundle, open_bundle, served_bundles, upstream_bundle
from service.ranking.model import Model, Shared
from service.ranking.preparation import SLICES_IN_HAND, Threads
from service.ranking.room import Room
from service.settings import Limits, Settings
from service.store.base import DocumentStore
from service.store.codec import Seal
from service.store.library import Library
from service.store.opening import open_store
from service.telemetry.gpus import Gpus
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
DEAD_SECONDS = 10  # until a supervisor has restarted a dead service
STORE_SHARE = 4  # requests for stored documents have, beside ranking, a quarter of its limits
CALLERS = 2  # one key may have half of that
EDGE_THREADS = 2  # for reading and writing JSON, apart from preparation: small requests do not wait behind large ones

T = TypeVar("T")


class Health(Protocol):
    """Whether the scoring process or thread works."""

    @property
    def alive(self) -> bool:
        """Whether submitted work is going to be scored."""

    @property
    def hung(self) -> bool:
        """Whether work that has begun makes no progress."""

    @property
    def ready(self) -> bool:
        """Whether scoring is alive and warmed up."""


class Models:
    """Models of different names, the default one first. Immutable: a reload makes a new object.

    Args:
        models: at least one before anything is served.
    """

    def __init__(self, models: Sequence[Model]) -> None:
        self._by_name = {model.name: model for model in models}

    def __iter__(self) -> Iterator[Model]:
        return iter(self._by_name.values())

    def get(self, name: str) -> Model | None:
        """The model of this name."""
        return self._by_name.get(name)

    @property
    def default(self) -> Model:
        """The first model."""
        return next(iter(self._by_name.values()))

    def chosen(self, call: Call, *, strict: bool) -> Model:
        """The model that a call names; the default if it names none, or, with a warning if there are several, if it is unknown.

        Raises RequestError 422 for an unknown name if the call is strict, or `strict` says so for all calls.
        """
        if call.model is None:
            return self.default
        if (model := self.get(call.model)) is not None:
            return model
        problem = f"{call.model[:LONGEST_SHOWN]!r} is not served here: there is {first_few([repr(name) for name in self._by_name])}"
        if strict or call.strict:
            raise RequestError(422, f"{problem}; ask for one of them, or leave it out", ("model",))
        if len(self._by_name) > 1:  # clients of other services always send a name; among several it is likely a mistake
            call.warnings.append(f"model: {problem}; {self.default.name!r} has answered")
        return self.default


class Ranker:
    """Everything that serves. Call `start` before use, and `close` after.

    Args:
        settings: threads, caps and sizes.
        opened: the served bundles, the default one first.
        store: keeps documents by id; None: requests for them are refused.
        upstream: the bundle that prepares documents for the settings' upstream; its model comes after those of the bundles.
        metrics: of the service; None: new ones.
        health: of scoring; None: the health of this process's worker.

    Attributes:
        health: decides whether requests are admitted.
        admission: of requests that rank.
        store_admission: of requests that store or show documents.
        uploads: the threads that prepare documents for the store.
        models: the served models; a reload replaces them.
        upstream: of these, the one that asks an upstream, if any; a reload leaves it as it is.
    """

    def __init__(
        self,
        settings: Settings,
        opened: Sequence[LoadedBundle],
        store: DocumentStore | None = None,
        upstream: Bundle | None = None,
        metrics: Metrics | None = None,
        health: Health | None = None,
    ) -> None:
        self.settings = settings
        self.metrics = metrics or Metrics()
        caps = Caps(settings.token_cap, settings.batch_ms / 1000, settings.hung_seconds)
        self.worker = Worker(caps, self.metrics, settings.score_cache_bytes)
        self.health: Health = health or self.worker
        self.gpus = Gpus(self.metrics)
        self.admission = Admission(settings, self._backlog, self.metrics, self._fastest_pace)
        self.store_admission = Admission(_of_the_store(settings), lambda: nothing_ahead, self.metrics, shares=CALLERS)
        self._edge = ThreadPoolExecutor(EDGE_THREADS, "edge")
        self._edge_large = ThreadPoolExecutor(EDGE_THREADS, "edge-large")
        n_threads = max(settings.n_threads, SLICES_IN_HAND)
        room = Room(settings.max_bytes_in_flight, settings.max_wait_ms / 1000, self.metrics)
        self._threads = Threads(n_threads, room)
        self.uploads = Threads(n_threads, Room(_of_the_store(settings).max_bytes_in_flight, None, self.metrics))
        seal = Seal(settings.store_key.get_secret_value())
        self.library = None
        if store is not None:
            self.library = Library(
                store, b"", settings.store_ttl_seconds, self.metrics, seal, lambda: self.admission.load.requests > 0
            )
        cache = DocumentCache(settings.cache_bytes)
        self._shared = Shared(settings, self.metrics, cache, self._threads, self.worker, self.library)
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

    def model(self, opened: LoadedBundle) -> Model:
        """Make a model, which starts to warm up and is not served yet. Raises BundleError and ModelDeadError."""
        return Model(opened, self._shared)

    def _asking_upstream(self, bundle: Bundle) -> Model:
        """The model in front of the settings' upstream."""
        from service.upstream.scorer import UpstreamScorer  # imports an HTTP client, which only an upstream needs

        name = bundle.manifest.name
        log.info("%s, at %s; blocks are cut by the tokenizer of %s", name, self.settings.upstream_place, bundle.path)
        scorer = UpstreamScorer(bundle, self.settings, self.metrics.of(name))
        return self.model(LoadedBundle(bundle, elsewhere=scorer))

    def serve(self, models: Models) -> None:
        """Replace the served models by these; each request in flight ends with the model that it began with."""
        gone = set(self.models) - set(models)
        if gone:
            self.worker.scores.clear()  # the entries of all models, since reloads are rare
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
            self.library.reading.understanding = (
                models.default.bundle.pipeline.understanding if self.settings.store_meaning else None
            )
        self.models = models

    def _fastest_pace(self) -> float:
        """Seconds per token of the fastest model."""
        return min((model.scorer.pace.seconds for model in self.models), default=0.0)

    def _backlog(self) -> SecondsAhead:
        """The work that waits for the least busy model: until its body is read, a new request may be for that one."""
        backlogs = [model.scorer.backlog() for model in self.models]
        return lambda own: min((ahead(own) for ahead in backlogs), default=0.0)

    async def measure(self) -> None:
        """Set the gauges of the metrics to what holds now."""
        self.worker.measure([model.name for model in self.models])
        self.gpus.measure()
        self.metrics.set("ready", self.health.ready)
        self.metrics.set("in_flight", self.admission.load.requests + self.store_admission.load.requests)
        backlogs = [model.scorer.backlog() for model in self.models]
        self.metrics.set("wait", max((self.admission.wait_seconds(ahead=ahead) for ahead in backlogs), default=0.0))
        if self.library is not None:
            await self.library.measure()

    def start(self) -> None:
        """Start the model's thread, which warms up first."""
        self.worker.start()

    def close(self) -> None:
        """Stop the threads; work that still waits fails."""
        self.worker.close()
        for pool in (self._edge, self._edge_large):
            pool.shutdown(wait=True, cancel_futures=True)
        self._threads.close()
        self.uploads.close()
        if self.library is not None:
            self.library.close()

    async def end(self) -> None:
        """Release everything that is bound to the event loop."""
        for model in self.models:
            await model.scorer.close()

    async def off_loop(self, work: Callable[[], T], *, large: bool) -> T:
        """Run short work off the event loop; large requests use their own threads, so that they do not hold up small ones."""
        return await asyncio.get_running_loop().run_in_executor(self._edge_large if large else self._edge, work)

    def enter(self, n_bytes: int) -> Place:
        """Let a request in that declares `n_bytes` bytes, of which none has arrived yet: see Admission.

        Raises RequestError: 503 when nothing can be served, 429 when there is no room.
        """
        if not self.health.alive:
            raise dead_error()
        if not self.health.ready:
            self.metrics.add("refused", why="unready")
            raise RequestError(503, "the model is warming up: try again, or another replica", kind="unready", retry_after=1)
        return self.admission.enter(n_bytes)


def _of_the_store(limits: Limits) -> Limits:
    """The limits of requests that store or show documents: whoever may only store can keep nobody from ranking."""
    names = "max_requests_in_flight", "max_bytes_in_flight"
    return limits.model_copy(update={name: max(getattr(limits, name) // STORE_SHARE, 1) for name in names})


def build_labels(model: Model) -> dict[str, str]:
    """Labels of the build metric: the model, its precision and its provider."""
    return {"version": __version__, "model": model.name, **model.scorer.labels()}


def dead_error() -> RequestError:
    """The answer of a service that needs a restart."""
    return RequestError(503, "the model is not running: try another replica", retry_after=DEAD_SECONDS)
