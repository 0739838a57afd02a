"""What the front processes and the model's have in common: how they begin, and that none outlives its supervisor for long."""

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
END_MODEL = (
    signal.SIGUSR1
)  # ends the model's process; SIGTERM does not, which comes to all at once where a service manager ends them


class Order(NamedTuple):
    """What a process is to do.

    Attributes:
        settings: of the whole service.
        model: the path of the Unix socket at which the model's process is asked.
        listening: file descriptors of sockets that it inherits.
        operators: the same for the admin port.
        loads: the one of what fronts hold; none for the model's process.
        number: of a front, the first of which is 0.
    """

    settings: Settings
    model: Path
    listening: list[int]
    operators: list[int]
    loads: int | None = None
    number: int = 0

    @property
    def descriptors(self) -> list[int]:
        """All file descriptors that it inherits."""
        return [*self.listening, *self.operators, *([] if self.loads is None else [self.loads])]


class Serving(NamedTuple):
    """What a front has read: all fronts, and the model's process, are to have read the same.

    Attributes:
        bundles: that it serves, the default first.
        graphs: those of them that it asks the model's process about.
        keys: that are in force; none where everybody may ask.
    """

    bundles: tuple[Named, ...]
    graphs: frozenset[Named]
    keys: tuple[Key, ...]


class Control:
    """The connection to the supervisor.

    Args:
        connected: this end of it.

    Attributes:
        lost: called when the supervisor has gone; by default this process finishes what is in flight and ends.
    """

    def __init__(self, connected: socket.socket) -> None:
        self.lost: Callable[[], None] = _end
        self._connected = connected
        self._handlers: dict[str, Any] = {"ping": _pong}
        self._peer = Peer(self._handlers, self._gone)

    async def open(self) -> None:
        """Notice from now on when the supervisor goes."""
        await asyncio.get_running_loop().create_connection(lambda: self._peer, sock=self._connected)

    async def started(self, handlers: Handlers) -> None:
        """Tell the supervisor that nothing is wrong with the settings, and answer it from now on."""
        self._handlers.update(handlers)
        await self.ask("started")

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call the supervisor. Raises GoneError."""
        return await self._peer.ask(method, *arguments)

    @asynccontextmanager
    async def loading(self) -> AsyncIterator[None]:
        """What is done within is to load something: for so long the supervisor expects no answers."""
        await self._tell("loading", True)
        try:
            yield
        finally:
            await self._tell("loading", False)

    @property
    def connected(self) -> bool:
        """Whether the supervisor is there."""
        return self._peer.connected

    async def _tell(self, method: str, *arguments: Any) -> None:
        with suppress(GoneError):  # this process goes on without it, until what is in flight is done
            await self.ask(method, *arguments)

    def _gone(self) -> None:
        self.lost()


Work = Callable[[Order, Control], Coroutine[Any, Any, int]]


def run(work: Work, connected: socket.socket) -> int:
    """Do what the supervisor orders over this connection; returns the exit code."""
    try:
        order: Order = read_frame(connected)
    except (EOFError, OSError):  # the supervisor was quicker to go
        return NOT_STARTED
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)  # the supervisor hears it
    loops = uvicorn.Config("", log_config=None).get_loop_factory()  # with its own logging, ours would not hold
    configure_logs(order.settings.log_level, order.settings.log_format)
    with asyncio.Runner(loop_factory=loops) as runner:
        try:
            return runner.run(_done(work, order, Control(connected)))
        except KeyboardInterrupt:  # the supervisor was interrupted twice: nobody waits for what is cancelled now, or for its trace
            logging.disable()
            return 0


async def _done(work: Work, order: Order, control: Control) -> int:
    """The exit code; what is wrong with the settings is told to the supervisor, which prints it once for all."""
    await control.open()
    try:
        return await work(order, control)
    except CANNOT_START as error:
        with suppress(GoneError):  # nobody is there who could print it
            await control.ask("failed", " ".join(str(error).split()))
        return BAD_START
    except GoneError:
        return NOT_STARTED
    finally:
        if not control.connected:  # nobody else is left who could
            shutil.rmtree(order.model.parent, ignore_errors=True)


def inherited(numbers: list[int]) -> list[socket.socket]:
    """The sockets of these file descriptors."""
    return [socket.socket(fileno=number) for number in numbers]


async def _pong() -> None:
    """Say that this process gets on."""


def _end() -> None:
    os.kill(os.getpid(), signal.SIGTERM)
