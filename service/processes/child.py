"""The common part of the front processes and the model's: how they begin, and how they end soon after their supervisor."""

import asyncio
import logging
import os
import shutil
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import uvicorn

from service.engine.errors import EngineDeadError, EngineError
from service.keys.keys import Key
from service.processes.peer import Handlers, Peer, read_frame
from service.remote.replicas import GoneError
from service.remote.wire import Named
from service.settings import Settings
from service.start import BAD, BAD_START, NOT_STARTED, stop
from service.telemetry.logs import configure_logs

CANNOT_START = (*BAD, EngineError, EngineDeadError)
END_MODEL = signal.SIGUSR1  # ends the model's process, as SIGTERM does not: a service manager sends that to all processes at once


class Order(NamedTuple):
    """The supervisor's order to a process.

    Attributes:
        settings: of the whole service.
        model: path of the Unix socket of the model's process.
        listening: file descriptors of sockets that it inherits.
        operators: the same for the admin port.
        loads: file descriptor of the fronts' loads; None for the model's process.
        number: of a front; the first one is 0.
    """

    settings: Settings
    model: Path
    listening: list[int]
    operators: list[int]
    loads: int | None = None
    number: int = 0

    @property
    def descriptors(self) -> list[int]:
        """All file descriptors that the process inherits."""
        return [*self.listening, *self.operators, *([] if self.loads is None else [self.loads])]


class Serving(NamedTuple):
    """The files that a front has read; all fronts and the model's process must have read the same ones.

    Attributes:
        bundles: the served bundles, the default first.
        graphs: those whose graphs the model's process runs.
        keys: the valid keys; empty if the service needs none.
    """

    bundles: tuple[Named, ...]
    graphs: frozenset[Named]
    keys: tuple[Key, ...]


class Control:
    """The connection to the supervisor.

    Args:
        connection: this end of it.

    Attributes:
        on_lost: called when the supervisor has gone; by default this process finishes its requests and ends.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.on_lost: Callable[[], None] = _end
        self._connection = connection
        self._handlers: dict[str, Any] = {"ping": _pong}
        self._peer = Peer(self._handlers, self._gone)

    async def open(self) -> None:
        """Connect, and notice from now on when the supervisor goes."""
        await asyncio.get_running_loop().create_connection(lambda: self._peer, sock=self._connection)

    async def started(self, handlers: Handlers) -> None:
        """Report a successful start to the supervisor, and answer its calls from now on."""
        self._handlers.update(handlers)
        await self.ask("started")

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call the supervisor. Raises GoneError."""
        return await self._peer.ask(method, *arguments)

    @asynccontextmanager
    async def loading(self) -> AsyncIterator[None]:
        """Report that the block loads something: meanwhile the supervisor expects no answers."""
        await self._notify("loading", True)
        try:
            yield
        finally:
            await self._notify("loading", False)

    @property
    def connected(self) -> bool:
        """Whether the supervisor is there."""
        return self._peer.connected

    async def _notify(self, method: str, *arguments: Any) -> None:
        with suppress(GoneError):  # this process goes on without the supervisor, until its requests are done
            await self.ask(method, *arguments)

    def _gone(self) -> None:
        self.on_lost()


Work = Callable[[Order, Control], Coroutine[Any, Any, int]]


def run(work: Work, connected: socket.socket) -> int:
    """Carry out the supervisor's order, which comes over this connection. Returns the exit code."""
    try:
        order: Order = read_frame(connected)
    except (EOFError, OSError):  # the supervisor has already gone
        return NOT_STARTED
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor handles it
    loops = uvicorn.Config("", log_config=None).get_loop_factory()  # its own logging would replace ours
    configure_logs(order.settings.log_level, order.settings.log_format)
    with asyncio.Runner(loop_factory=loops) as runner:
        try:
            return runner.run(_run_work(work, order, Control(connected)))
        except KeyboardInterrupt:  # the supervisor was interrupted twice: nobody needs the cancelled work, or its traceback
            logging.disable()
            return 0


async def _run_work(work: Work, order: Order, control: Control) -> int:
    """Run the work and return the exit code. Problems with the settings go to the supervisor, which prints them once for all."""
    await control.open()
    try:
        return await work(order, control)
    except CANNOT_START as error:
        with suppress(GoneError):  # the supervisor has gone, and cannot print it
            await control.ask("failed", " ".join(str(error).split()))
        return BAD_START
    except GoneError:
        return NOT_STARTED
    finally:
        if not control.connected:  # then no other process removes it
            shutil.rmtree(order.model.parent, ignore_errors=True)


def inherited(numbers: list[int]) -> list[socket.socket]:
    """The sockets of these file descriptors."""
    return [socket.socket(fileno=number) for number in numbers]


async def _pong() -> None:
    """Answer a ping."""


def _end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
