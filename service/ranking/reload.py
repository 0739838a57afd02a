"""New bundles and API keys in the place of those that are served, without a request lost.

The bundles are read, checked and opened in a thread of their own, and warmed up on the model's thread, a run at a time between the
rounds of requests: a request waits for one run, and what is measured is what the model can do there. Then all change at once. What
is in flight ends with the model that it began with, whose memory is given back after the last of it.

ONNX Runtime holds the interpreter lock while it opens a graph: all threads wait for that long.
"""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, NamedTuple, TypeVar

from starlette.datastructures import State

from keyblock.bundle import Bundle, BundleError
from keyblock.runtime.providers import ProviderError
from keyblock.runtime.session import SessionError
from service.engine.errors import EngineDeadError, EngineError
from service.keys.keys import Keyring, KeysError, describe, load_keys
from service.ranking.loading import Open, open_bundle, served_bundles
from service.ranking.model import Model
from service.ranking.models import Models
from service.ranking.ranker import Ranker
from service.settings import Settings
from service.terminal import Terminal

log = logging.getLogger(__name__)
T = TypeVar("T")


class ReloadError(Exception):
    """The new bundles or keys cannot be served, and the old ones still are; one clear line.

    Attributes:
        partly: whether some processes of the service serve the new ones.
    """

    def __init__(self, problem: str, *, partly: bool = False) -> None:
        super().__init__(problem)
        self.partly = partly


class Reloaded(NamedTuple):
    """What a reload has changed.

    Attributes:
        models: names of those that are served now, the default first.
        loaded: of these, what is new or not as it was.
        removed: names that are not served any more.
        keys: names of the API keys that are in force now.
        seconds: that it took.
    """

    models: list[str]
    loaded: list[str]
    removed: list[str]
    keys: list[str]
    seconds: float


class Reloader:
    """Reloads, one at a time; to be made and used on the event loop.

    Args:
        ranker: that serves the bundles.
        state: the application's, whose `keyring` says who may ask.
        read: gives the bundles that the settings name, checked.
        opened: opens one's graphs.
    """

    def __init__(
        self,
        ranker: Ranker,
        state: State,
        read: Callable[[Settings], list[Bundle]] = served_bundles,
        opened: Open = open_bundle,
    ) -> None:
        self._ranker, self._state, self._machine = ranker, state, ranker.machine
        self._read, self._opened = read, opened
        self._thread = self._machine.pool(1, "reload")
        self._one_at_a_time = asyncio.Lock()
        self._next: asyncio.Task[Reloaded] | None = None
        self._tasks: set[asyncio.Task[Any]] = set()  # the event loop alone would not keep them alive
        self._terminal = Terminal()
        self._closed = False

    def listen(self) -> None:
        """SIGHUP asks for a reload from now on, where signals are heard: on the main thread."""
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._hung_up)

    def close(self) -> None:
        """Wait for what is being loaded; it is not served any more."""
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        self._closed = True
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def reload(self) -> Reloaded:
        """Read all bundles and keys again and serve them. Raises ReloadError: then nothing has changed.

        Who asks while a reload is under way gets the next one, which sees all that was there when they asked. It goes on when
        nobody waits for it any more.
        """
        if self._next is None:
            self._next = self._begun(self._after_the_one_in_hand())
        return await asyncio.shield(self._next)

    def _hung_up(self) -> None:
        """SIGHUP: a reload, or, where the terminal was closed that this was started from, the end, as without a handler."""
        if self._terminal.closed:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        self._begun(self._quietly())

    def _begun(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # it is logged; asyncio would log it again, with its trace, where nobody waits for it any more

    async def _quietly(self) -> None:
        try:
            await self.reload()
        except ReloadError:
            return  # logged

    async def _after_the_one_in_hand(self) -> Reloaded:
        async with self._one_at_a_time:
            self._next = None
            try:
                reloaded = await self._reload()
            except Exception as error:
                self._ranker.metrics.add("reloads", outcome="failed")
                raise _logged(error) from None
            counts = reloaded.seconds, reloaded.models, reloaded.loaded, reloaded.removed
            log.info("reloaded in %.1f s: serving %s; new: %s; gone: %s", *counts)
            return reloaded

    async def _reload(self) -> Reloaded:
        began = self._machine.now()
        old = self._ranker.models
        if self._closed:
            raise EngineDeadError("the service is ending")
        keyring, models = await self._machine.run(self._thread, self._load, old)
        new = [model for model in models if model not in set(old)]
        await self._warmed(new)
        self._ranker.serve(Models(models))
        rekeyed = self._admit(keyring)
        names = [model.name for model in models]
        removed = [model.name for model in old if model.name not in names]
        self._ranker.metrics.add("reloads", outcome="ok" if new or removed or rekeyed else "unchanged")
        held = [key.name for key in keyring.keys] if keyring else []
        return Reloaded(names, [model.name for model in new], removed, held, self._machine.now() - began)

    def _admit(self, keyring: Keyring | None) -> bool:
        """These are the keys from now on; whether they differ from those until now."""
        old: Keyring | None = self._state.keyring
        if old is None or keyring is None or old.keys == keyring.keys:
            return False
        self._state.keyring = keyring
        log.info("%s", describe(keyring))
        return True

    def _load(self, old: Models) -> tuple[Keyring | None, list[Model]]:
        """The keys, and the models of all bundles; those whose bundle is as it was are the old ones."""
        settings = self._ranker.settings
        keyring = load_keys(settings)
        bundles = self._read(settings)
        kept = {bundle.manifest.name: model for bundle in bundles if (model := _unchanged(bundle, old)) is not None}
        opened = [self._opened(bundle, settings) for bundle in bundles if bundle.manifest.name not in kept]
        models = dict(kept)
        try:
            for one in opened:
                models[one.bundle.manifest.name] = self._ranker.model(one)
        except Exception:
            self._give_up([model for name, model in models.items() if name not in kept])
            raise
        upstream = self._ranker.upstream
        return keyring, [models[bundle.manifest.name] for bundle in bundles] + ([] if upstream is None else [upstream])

    async def _warmed(self, models: Sequence[Model]) -> None:
        """Wait until all are; what fails one ends the warm-up of the others. Raises EngineError or EngineDeadError."""
        try:
            await asyncio.gather(*(asyncio.wrap_future(model.scorer.warmed) for model in models))
        except BaseException:
            self._give_up(models)
            raise

    def _give_up(self, models: Sequence[Model]) -> None:
        """Cancel the warm-up of models that will not be served, and remove their metrics where no model has the name."""
        for model in models:
            model.scorer.warmed.cancel()
            if self._ranker.models.get(model.name) is None:
                model.metrics.forget_model()


def _unchanged(bundle: Bundle, old: Models) -> Model | None:
    """The model of the same bundle: its manifest has the hashes of all files."""
    model = old.get(bundle.manifest.name)
    same = model is not None and model.bundle.path == bundle.path and model.bundle.manifest == bundle.manifest
    return model if same else None


def _logged(error: Exception) -> ReloadError:
    """The error in one line, for the answer; it is logged too."""
    if isinstance(error, BundleError | KeysError | ProviderError | SessionError | EngineError | EngineDeadError):
        problem = " ".join(str(error).split())
        log.error("not reloaded, nothing has changed: %s", problem)
    else:
        problem = "an unexpected error; the log says more"
        log.error("not reloaded, nothing has changed", exc_info=error)
    return ReloadError(problem)
