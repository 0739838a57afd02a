"""Replaces the served bundles and API keys by new ones, without losing a request.

A thread of its own reads, checks and opens the bundles. The model's thread warms them up, one run at a time, between the rounds of
requests: a request waits for at most one run, and the measurements show the model's speed in service. Then all models change at
once. Requests in flight end with the model that they began with, whose memory is freed after the last of them.

ONNX Runtime holds the interpreter lock while it opens a graph: all threads wait for that long.
"""

import asyncio
import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from starlette.datastructures import State

from keyblock.bundle import Bundle, BundleError
from keyblock.runtime.providers import ProviderError
from keyblock.runtime.session import SessionError
from service.keys.keys import Keyring, KeysError, describe, load_keys
from service.queue.job import ModelDeadError, ModelError
from service.ranking.loading import Open, open_bundle, served_bundles
from service.ranking.model import Model
from service.ranking.ranker import Models, Ranker
from service.settings import Settings
from service.terminal import Terminal

log = logging.getLogger(__name__)


class ReloadError(Exception):
    """The new bundles or keys cannot be served, and the old ones still are; the message is one clear line."""


class Reloaded(NamedTuple):
    """The result of a reload.

    Attributes:
        models: names of the served models, the default first.
        loaded: names of those that are new or changed.
        removed: names that are not served any more.
        keys: names of the valid API keys.
        seconds: that the reload took.
    """

    models: list[str]
    loaded: list[str]
    removed: list[str]
    keys: list[str]
    seconds: float


class Reloader:
    """Makes reloads, one at a time; to be made and used on the event loop.

    Args:
        ranker: serves the bundles.
        state: the application's state, whose `keyring` says who may send requests.
        read: gives the bundles that the settings name, checked.
        opened: opens a bundle's graphs.
    """

    def __init__(
        self,
        ranker: Ranker,
        state: State,
        read: Callable[[Settings], list[Bundle]] = served_bundles,
        opened: Open = open_bundle,
    ) -> None:
        self._ranker, self._state = ranker, state
        self._read, self._opened = read, opened
        self._thread = ThreadPoolExecutor(1, "reload")
        self._lock = asyncio.Lock()
        self._next: asyncio.Task[Reloaded] | None = None
        self._tasks: set[asyncio.Task[Reloaded]] = set()  # holds references: the event loop keeps none that would keep a task alive
        self._terminal = Terminal()
        self._closed = False

    def listen(self) -> None:
        """Make SIGHUP start a reload; on the main thread only, where signals arrive."""
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._on_sighup)

    def close(self) -> None:
        """Wait for the load in hand; its bundles are not served any more."""
        if threading.current_thread() is threading.main_thread():
            asyncio.get_running_loop().remove_signal_handler(signal.SIGHUP)
        self._closed = True
        self._thread.shutdown(wait=True, cancel_futures=True)

    async def reload(self) -> Reloaded:
        """Read all bundles and keys again and serve them. Raises ReloadError: then nothing has changed.

        A caller during a reload gets the next one, which sees all files as they are at the time of the call. A reload goes on when
        nobody waits for it any more.
        """
        return await asyncio.shield(self._begin())

    def _on_sighup(self) -> None:
        """SIGHUP: start a reload; but if it came because the terminal of the service was closed, end, as without a handler."""
        if self._terminal.closed:
            os.kill(os.getpid(), signal.SIGTERM)
            return
        self._begin()

    def _begin(self) -> asyncio.Task[Reloaded]:
        """The next reload, which has not begun to read."""
        if self._next is None:
            self._next = asyncio.create_task(self._reload_next())
            self._tasks.add(self._next)
            self._next.add_done_callback(self._done)
        return self._next

    def _done(self, task: asyncio.Task[Reloaded]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.exception()  # marks it as seen: it is logged, and asyncio would log it again if nobody waits for it any more

    async def _reload_next(self) -> Reloaded:
        async with self._lock:
            self._next = None
            try:
                reloaded = await self._reload()
            except Exception as error:
                self._ranker.metrics.add("reloads", outcome="failed")
                raise _log_failure(error) from None
            counts = reloaded.seconds, reloaded.models, reloaded.loaded, reloaded.removed
            log.info("reloaded in %.1f s: serving %s; new: %s; gone: %s", *counts)
            return reloaded

    async def _reload(self) -> Reloaded:
        began = time.perf_counter()
        old = self._ranker.models
        if self._closed:
            raise ModelDeadError("the service is ending")
        keyring, models = await asyncio.get_running_loop().run_in_executor(self._thread, self._load, old)
        new = [model for model in models if model not in set(old)]
        await self._wait_until_warm(new)
        self._ranker.serve(Models(models))
        keys_changed = self._use_keys(keyring)
        names = [model.name for model in models]
        removed = [model.name for model in old if model.name not in names]
        self._ranker.metrics.add("reloads", outcome="ok" if new or removed or keys_changed else "unchanged")
        key_names = [key.name for key in keyring.keys] if keyring else []
        return Reloaded(names, [model.name for model in new], removed, key_names, time.perf_counter() - began)

    def _use_keys(self, keyring: Keyring | None) -> bool:
        """Use these keys from now on. Returns whether they differ from the old ones."""
        old: Keyring | None = self._state.keyring
        if old is None or keyring is None or old.keys == keyring.keys:
            return False
        self._state.keyring = keyring
        log.info("%s", describe(keyring))
        return True

    def _load(self, old: Models) -> tuple[Keyring | None, list[Model]]:
        """The keys, and the models of all bundles; an unchanged bundle keeps its old model."""
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

    async def _wait_until_warm(self, models: Sequence[Model]) -> None:
        """Wait until all models are warm; if one fails, the others are given up. Raises ModelError or ModelDeadError."""
        try:
            await asyncio.gather(*(asyncio.wrap_future(model.scorer.warmed) for model in models))
        except BaseException:
            self._give_up(models)
            raise

    def _give_up(self, models: Sequence[Model]) -> None:
        """Cancel the warm-up of models that will not be served, and remove the metrics of names that no served model has."""
        for model in models:
            model.scorer.warmed.cancel()
            if self._ranker.models.get(model.name) is None:
                model.metrics.forget_model()


def _unchanged(bundle: Bundle, old: Models) -> Model | None:
    """The old model if its bundle is unchanged: the manifest holds the hashes of all files."""
    model = old.get(bundle.manifest.name)
    same = model is not None and model.bundle.path == bundle.path and model.bundle.manifest == bundle.manifest
    return model if same else None


def _log_failure(error: Exception) -> ReloadError:
    """The error in one line, for the answer; also logs it."""
    if isinstance(error, BundleError | KeysError | ProviderError | SessionError | ModelError | ModelDeadError):
        problem = " ".join(str(error).split())
        log.error("not reloaded, nothing has changed: %s", problem)
    else:
        problem = "an unexpected error; the log says more"
        log.error("not reloaded, nothing has changed", exc_info=error)
    return ReloadError(problem)
