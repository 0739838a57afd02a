"""Connections to a server that may not be a Redis: its answer to a command is limited, in bytes and in time."""

import socket
import time
from typing import Any

from redis.exceptions import ConnectionError, TimeoutError

MOST_BYTES = 128 << 20  # of an answer: more than the largest document
MOST_SECONDS = 10.0  # until an answer is complete, however often a part of it arrives


class BoundedSocket:
    """A socket that gives up on an endless answer; all else is passed to the wrapped socket."""

    def __init__(self, wrapped: socket.socket) -> None:
        self._wrapped = wrapped
        self._bytes_left, self._deadline = MOST_BYTES, time.perf_counter() + MOST_SECONDS

    def sendall(self, data: bytes, *flags: int) -> None:
        """Send a command, and start the limits of its answer anew."""
        self._bytes_left, self._deadline = MOST_BYTES, time.perf_counter() + MOST_SECONDS
        self._wrapped.sendall(data, *flags)

    def recv(self, size: int, *flags: int) -> bytes:
        """Receive a part of the answer. Raises ConnectionError or TimeoutError, of redis, if the answer exceeds a limit."""
        if self._bytes_left <= 0:
            raise ConnectionError(f"an answer has more than {MOST_BYTES >> 20} MiB")
        if time.perf_counter() > self._deadline:
            raise TimeoutError(f"an answer takes more than {MOST_SECONDS:g} s")
        received = self._wrapped.recv(size, *flags)
        self._bytes_left -= len(received)
        return received

    def __getattr__(self, name: str) -> Any:
        return getattr(self._wrapped, name)


def bounded(connection: type) -> type:
    """A subclass of a connection class of redis that uses BoundedSockets."""

    def _connect(self: Any, *arguments: Any) -> BoundedSocket:
        return BoundedSocket(connection._connect(self, *arguments))  # type: ignore[attr-defined]

    return type(f"Bounded{connection.__name__}", (connection,), {"_connect": _connect})
