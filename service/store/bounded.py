"""Connections to a Redis that may not be one: what it sends in answer to a command is bounded, in bytes and in time."""

import socket
from typing import Any

from redis.exceptions import ConnectionError, TimeoutError

from service.machine import ASYNCIO, Clock

MOST_BYTES = 128 << 20  # of an answer: the largest document, and some more
MOST_SECONDS = 10.0  # until an answer is complete, however often something of it arrives


class BoundedSocket:
    """A socket that gives up on an endless answer; everything else is the socket's own."""

    def __init__(self, wrapped: socket.socket, clock: Clock = ASYNCIO.now) -> None:
        self._wrapped, self._clock = wrapped, clock
        self._left, self._until = MOST_BYTES, clock() + MOST_SECONDS

    def sendall(self, data: bytes, *flags: int) -> None:
        """Send a command: its answer may have as many bytes and seconds again."""
        self._left, self._until = MOST_BYTES, self._clock() + MOST_SECONDS
        self._wrapped.sendall(data, *flags)

    def recv(self, size: int, *flags: int) -> bytes:
        """Some of the answer. Raises ConnectionError or TimeoutError, of redis, where it does not end."""
        if self._left <= 0:
            raise ConnectionError(f"an answer has more than {MOST_BYTES >> 20} MiB")
        if self._clock() > self._until:
            raise TimeoutError(f"an answer takes more than {MOST_SECONDS:g} s")
        received = self._wrapped.recv(size, *flags)
        self._left -= len(received)
        return received

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


def bounded(connection: type, clock: Clock = ASYNCIO.now) -> type:
    """A class of redis' connections whose sockets are BoundedSockets."""

    def _connect(self: Any, *arguments: Any) -> BoundedSocket:
        return BoundedSocket(connection._connect(self, *arguments), clock)  # type: ignore[attr-defined]

    return type(f"Bounded{connection.__name__}", (connection,), {"_connect": _connect})
