"""The way from a front process to the model's, whichever process that is at the moment."""

import asyncio
from collections.abc import Callable, Set
from pathlib import Path
from typing import Any

from service.processes.peer import Peer
from service.remote.replicas import Replicas
from service.remote.wire import Named

AGAIN_SECONDS = 0.1  # until one tries again to connect where nobody listens


class Link:
    """A connection that is made when it is needed, and again after it was lost.

    Args:
        path: of the model's Unix socket.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._peer = Peer({})
        self._one_at_a_time = asyncio.Lock()

    @property
    def up(self) -> bool:
        """Whether the process at the other end has answered."""
        return self._peer.connected and self._peer.heard

    async def ask(self, method: str, *arguments: Any) -> Any:
        """See `service.remote.replicas.Ask`; waits until there is a process that can be asked."""
        async with self._one_at_a_time:
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
            await asyncio.sleep(AGAIN_SECONDS)


class Health:
    """Whether the model can be asked: see `service.ranking.ranker.Health`.

    Args:
        link: to its process.
        replicas: what is known of it.
        served: the bundles that it is asked about. A process that was started again has read what is in their directories by now.
    """

    hung = False  # a process whose model hangs ends, and another one takes its place

    def __init__(self, link: Link, replicas: Replicas, served: Callable[[], Set[Named]]) -> None:
        self._link, self._replicas, self._served = link, replicas, served

    @property
    def alive(self) -> bool:
        """Whether it is going to answer."""
        return self._replicas.alive

    @property
    def ready(self) -> bool:
        """Whether it is warm and has these bundles; not any more as soon as its process has gone."""
        return self._link.up and self._replicas.ready and self._replicas.hold(self._served())
