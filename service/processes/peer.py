"""Calls between two processes over a connected socket: many at once, in both directions.

A frame is a length and a pickle. Unpickling may run any code of the sender, so nobody else can reach the sockets: they have no
name, or are in a directory that is closed to other users.
"""

import asyncio
import itertools
import logging
import pickle
import socket
import struct
from collections.abc import Awaitable, Callable, Mapping
from enum import IntEnum
from typing import Any, cast

from service.engine.errors import EngineDeadError, EngineError
from service.ranking.reload import ReloadError
from service.remote.replicas import GoneError

log = logging.getLogger(__name__)
HEADER = struct.Struct("!Q")  # bytes of the pickle that follows
PASSED_ON = (EngineError, EngineDeadError, ReloadError)  # errors of a call that its caller gets; others are only logged here
Handlers = Mapping[str, Callable[..., Awaitable[Any]]]


class Kind(IntEnum):
    """Kind of a frame: a call with its method and arguments, a result, an error, or the cancellation of a call."""

    CALL = 0
    RETURNED = 1
    RAISED = 2
    CANCEL = 3


class UnexpectedError(Exception):
    """A call failed at the other end with an unexpected error; the log of that process says more."""


class Peer(asyncio.Protocol):
    """One end of a connection.

    Args:
        handlers: the methods that the other end may call.
        on_lost: called once the connection has ended.

    Attributes:
        has_answered: whether the other end has answered a call.
    """

    def __init__(self, handlers: Handlers, on_lost: Callable[[], None] = lambda: None) -> None:
        self.has_answered = False
        self._handlers, self._on_lost = handlers, on_lost
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray()
        self._numbers = itertools.count()
        self._pending: dict[int, asyncio.Future[Any]] = {}
        self._running: dict[int, asyncio.Task[None]] = {}

    @property
    def connected(self) -> bool:
        """Whether the connection is there."""
        return self._transport is not None and not self._transport.is_closing()

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call the other end; cancelling the await cancels the call there. Raises GoneError, TOLD and UnexpectedError."""
        if not self.connected:
            raise GoneError("the process that is asked has gone")
        number = next(self._numbers)
        self._pending[number] = answer = asyncio.get_running_loop().create_future()
        self._send(Kind.CALL, number, (method, arguments))
        try:
            return await answer
        except asyncio.CancelledError:
            self._send(Kind.CANCEL, number, None)
            raise
        finally:
            del self._pending[number]

    def close(self) -> None:
        """End the connection, after everything sent is written."""
        if self._transport is not None:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See Protocol."""
        self._transport = cast(asyncio.Transport, transport)  # uvloop's class does not derive from it

    def data_received(self, data: bytes) -> None:
        """See Protocol."""
        self._buffer += data
        while len(self._buffer) >= HEADER.size:
            end = HEADER.size + HEADER.unpack_from(self._buffer)[0]
            if len(self._buffer) < end:
                return
            with memoryview(self._buffer) as view, view[HEADER.size : end] as frame:
                received = pickle.loads(frame)
            del self._buffer[:end]
            self._receive(*received)

    def connection_lost(self, exc: Exception | None) -> None:
        """See Protocol: pending calls fail with GoneError, and running calls of the other end are cancelled."""
        for answer in self._pending.values():
            if not answer.done():
                answer.set_exception(GoneError("the process that was asked has gone"))
        for task in self._running.values():
            task.cancel()
        self._on_lost()

    def _receive(self, kind: Kind, number: int, content: Any) -> None:
        if kind is Kind.CALL:
            self._running[number] = task = asyncio.create_task(self._answer(number, *content))
            task.add_done_callback(lambda _: self._running.pop(number, None))
        elif kind is Kind.CANCEL:
            if (working := self._running.get(number)) is not None:
                working.cancel()
        elif (answer := self._pending.get(number)) is not None and not answer.done():
            self.has_answered = True
            if kind is Kind.RETURNED:
                answer.set_result(content)
            else:
                answer.set_exception(content)

    async def _answer(self, number: int, method: str, arguments: tuple[Any, ...]) -> None:
        try:
            self._send(Kind.RETURNED, number, await self._handlers[method](*arguments))
        except PASSED_ON as error:
            self._send(Kind.RAISED, number, error)
        except Exception:
            log.exception("the call %s of another process failed", method)
            self._send(Kind.RAISED, number, UnexpectedError(f"{method} failed in another process, whose log says more"))

    def _send(self, kind: Kind, number: int, content: Any) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(framed((kind, number, content)))


def framed(content: Any) -> bytes:
    """The bytes of a frame."""
    pickled = pickle.dumps(content, protocol=5)
    return HEADER.pack(len(pickled)) + pickled


def read_frame(connected: socket.socket) -> Any:
    """Wait for the next frame, and return its content. Raises EOFError if the other end has gone."""
    return pickle.loads(_read(connected, HEADER.unpack(_read(connected, HEADER.size))[0]))


def _read(connected: socket.socket, size: int) -> bytes:
    read = b""
    while len(read) < size:
        if not (piece := connected.recv(size - len(read))):
            raise EOFError("the other end is gone")
        read += piece
    return read
