"""The connection from a front process to the model's process of the moment."""

import asyncio
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any

from service.processes.peer import Peer
from service.remote.replicas import Replicas
from service.remote.wire import Named

RETRY_SECONDS = 0.1  # until the next try to connect where nobody listens


class Link:
    """A connection that is made when needed, and again after a loss.

    Args:
        path: of the model's Unix socket.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._peer = Peer({})
        self._lock = asyncio.Lock()

    @property
    def has_answered(self) -> bool:
        """Whether the process at the other end has answered on this connection."""
        return self._peer.connected and self._peer.has_answered

    async def ask(self, method: str, *arguments: Any) -> Any:
        """See `service.remote.replicas.Ask`; waits until there is a process that accepts calls."""
        async with self._lock:
            while not self._peer.connected:
                await self._connect()
        return await self._peer.ask(method, *arguments)

    def close(self) -> None:
        """End the connection."""
        self._peer.close()

    async def _connect(self) -> None:
        try:
            _, self._peer = await asyncio.get_running_loop().create_unix_connection(lambda: Peer({}), str(self._path))
        except OSError:
            await asyncio.sleep(RETRY_SECONDS)


class Health:
    """Whether the model's process accepts requests: see `service.ranking.ranker.Health`.

    Args:
        link: to the model's process.
        replicas: the last known state of that process.
        served: gives the bundles that this front needs. A process that was started again has read the current files instead.
    """

    hung = False  # a process whose model hangs ends, and another replaces it

    def __init__(self, link: Link, replicas: Replicas, served: Callable[[], Set[Named]]) -> None:
        self._link, self._replicas, self._served = link, replicas, served

    @property
    def alive(self) -> bool:
        """Whether the model's process is going to answer."""
        return self._replicas.alive

    @property
    def ready(self) -> bool:
        """Whether the model's process is warm and has these bundles; False as soon as the process has gone."""
        return self._link.has_answered and self._replicas.ready and self._replicas.have_open(self._served())
