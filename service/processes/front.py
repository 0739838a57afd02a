"""The process that speaks HTTP and prepares documents, and calls the model's process for scores."""

import asyncio
import gc
from contextlib import suppress

from starlette.datastructures import State

from keyblock.bundle import Bundle
from service.app import create_admin_app, create_app
from service.engine.errors import EngineDeadError
from service.http.listeners import server
from service.keys.keys import Keyring
from service.processes.child import Control, Order, Serving, inherited
from service.processes.link import Health, Link
from service.processes.loads import loads_of, mapped
from service.processes.shares import share_of
from service.ranking.admission import Loads
from service.ranking.loading import Opened, served_bundles, upstream_bundle
from service.ranking.ranker import Ranker
from service.ranking.reload import Reloaded, Reloader, ReloadError
from service.remote.replicas import GoneError, RemoteScorer, Replicas, opened
from service.remote.wire import Named, named
from service.settings import Settings
from service.start import NOT_STARTED, configure_threads
from service.store.opening import open_store


async def front(order: Order, control: Control) -> int:
    """Serve until SIGTERM. Returns the exit code."""
    link, settings = Link(order.model), share_of(order.settings)
    configure_threads(settings)
    replicas = Replicas(link.ask, settings.hung_seconds)
    loads = None if order.loads is None else loads_of(order.number, mapped(order.loads, settings.processes))
    gc.disable()  # loaded objects stay in memory: see `service.start.load_once`
    ranker = await loaded(settings, link, replicas, loads)
    gc.freeze()
    gc.enable()

    made_reloader: asyncio.Future[SharedReloader] = asyncio.get_running_loop().create_future()

    def reloader(ranker: Ranker, state: State) -> SharedReloader:
        made_reloader.set_result(SharedReloader(ranker, state, replicas, control))
        return made_reloader.result()

    app = create_app(order.settings, ranker, reloader, lambda: control.ask("families"))

    async def reload() -> Reloaded:
        async with control.loading():
            return await (await asyncio.shield(made_reloader)).reload_here()

    async def read() -> Serving:
        return serving_of(ranker, app.state.keyring)

    await control.started({"families": ranker.families, "reload": reload, "serving": read})
    replicas.listen()
    clients = app, inherited(order.listening)
    operators = (create_admin_app(app), inherited(order.operators)) if order.operators else None
    serving = server(settings, ranker.metrics, clients, operators)
    try:
        await serving.serve(sockets=clients[1])
    finally:
        await replicas.close()
        link.close()
    return 0 if serving.started else NOT_STARTED


async def loaded(settings: Settings, link: Link, replicas: Replicas, loads: Loads | None) -> Ranker:
    """The ranker; waits until the model's process has opened the bundles. Raises what loading a bundle raises, and EngineError."""
    bundles = [await opened_remotely(bundle, replicas) for bundle in served_bundles(settings)]
    health = Health(link, replicas, lambda: graphs_of(ranker))
    ranker = Ranker(settings, bundles, open_store(settings), upstream_bundle(settings), health=health, loads=loads)
    return ranker


async def opened_remotely(bundle: Bundle, replicas: Replicas) -> Opened:
    """A bundle that the model's process has opened; if that process ends meanwhile, the next one. Raises EngineError."""
    while True:
        with suppress(GoneError):
            return await opened(bundle, replicas)


def graphs_of(ranker: Ranker) -> frozenset[Named]:
    """The bundles that the model's process scores for this front."""
    return frozenset(model.scorer.name for model in ranker.models if isinstance(model.scorer, RemoteScorer))


def serving_of(ranker: Ranker, keyring: Keyring | None) -> Serving:
    """The bundles and keys that this process has read."""
    bundles = tuple(named(model.bundle) for model in ranker.models if model is not ranker.upstream)
    return Serving(bundles, graphs_of(ranker), keyring.keys if keyring else ())


class SharedReloader(Reloader):
    """Reloads all processes of the service, whichever of them gets the request.

    Args:
        ranker: of this process.
        state: see Reloader.
        replicas: calls the model's process.
        control: calls the supervisor, which reloads all processes.
    """

    def __init__(self, ranker: Ranker, state: State, replicas: Replicas, control: Control) -> None:
        loop = asyncio.get_running_loop()

        def open_there(bundle: Bundle, _: Settings) -> Opened:
            try:
                return asyncio.run_coroutine_threadsafe(opened(bundle, replicas), loop).result()
            except GoneError:
                raise EngineDeadError("the model's process ended while it opened the bundle") from None

        super().__init__(ranker, state, opened=open_there)
        self._control = control

    def listen(self) -> None:
        """See Reloader: only the supervisor handles signals."""

    def close(self) -> None:
        """See Reloader; a load in hand waits for this event loop, and is cancelled with it."""
        self._closed = True
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def reload(self) -> Reloaded:
        """See Reloader: all processes, one after the other."""
        try:
            reloaded: Reloaded = await self._control.ask("reload")
        except GoneError as error:
            raise ReloadError(str(error)) from None
        return reloaded

    async def reload_here(self) -> Reloaded:
        """Reload this process alone."""
        return await super().reload()
