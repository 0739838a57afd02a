"""A process of the service as its supervisor knows it: started, watched, started again, ended."""

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

from prometheus_client import Metric

from service.processes.child import Order
from service.processes.peer import Handlers, Peer, framed
from service.remote.replicas import GoneError
from service.start import BAD_START, NOT_STARTED
from service.telemetry.merging import Merged, counted

log = logging.getLogger(__name__)
LONGEST_PAUSE = 30.0  # seconds until a process that ended is started again; the first time it is at once
STEADY_SECONDS = 60.0  # after which a process counts as one that runs
KILL_SECONDS = 10.0  # that a process is given beside what requests in flight are
MOST_FAILURES = 3  # of a process that has never started, after which it is given up
PING_SECONDS = 1.0  # between two questions whether it gets on
ANSWER_SECONDS = 5.0  # that it is waited for when all are asked how they are


class Watched:
    """A process that is there again whenever it has ended.

    Args:
        name: for people.
        work: what it does: "module:function", see `service.processes.child.Work`.
        order: that it is given.
        handlers: what it may ask.
        started: called whenever it has started.
        signal_number: that ends it.

    Attributes:
        problem: why it cannot start, as it says itself; empty for none.
    """

    def __init__(
        self,
        name: str,
        work: str,
        order: Order,
        handlers: Handlers,
        started: Callable[[], None] = lambda: None,
        signal_number: int = signal.SIGTERM,
    ) -> None:
        self.name, self.problem = name, ""
        self._work, self._order, self._told, self._signal = work, order, started, signal_number
        self._handlers = {**handlers, "started": self._has_started, "failed": self._has_failed}
        self._process: asyncio.subprocess.Process | None = None
        self._peer = Peer({})
        self._up = self._started = False
        self._ending = asyncio.Event()
        self._last: list[Metric] = []
        self._counted: list[Metric] = []

    async def keep(self) -> int:
        """Run it until it is ended, and again after it ended by itself; its exit code where it could never start."""
        pause, failures = 0.0, 0
        while not self._ending.is_set():
            began = time.monotonic()
            code = await self._run()
            failures += 1
            why = f": {self.problem}" if self.problem else ""
            if self._ending.is_set():
                break
            if not self._started and (code in (BAD_START, NOT_STARTED) or failures == MOST_FAILURES):
                log.critical("%s ended with %d%s; it has never started", self.name, code, why)
                return code if code > 0 else NOT_STARTED
            pause = 0.0 if time.monotonic() - began > STEADY_SECONDS else pause
            log.error("%s ended with %d%s; it is started again in %g s", self.name, code, why, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause + 1, LONGEST_PAUSE)
        return 0

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call it. Raises GoneError and what the call raises."""
        if not self._up:
            raise GoneError(f"{self.name} is not running")
        return await self._peer.ask(method, *arguments)

    async def families(self) -> list[Metric]:
        """Its metrics, or what it last said where it says nothing; and what those have counted that were there before it."""
        with suppress(GoneError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                self._last = await self.ask("families")
        return Merged([self._counted, self._last]).collect()

    def end(self, number: int | None = None) -> None:
        """Send it a signal, by default the one that ends it; it is not started again."""
        self._ending.set()
        self._send(self._signal if number is None else number)

    async def ended(self, seconds: float) -> None:
        """Wait for its end, so many seconds and some more; then it is killed."""
        if self._process is None:
            return
        try:
            async with asyncio.timeout(seconds + KILL_SECONDS):
                await self._process.wait()
        except TimeoutError:
            log.error("%s does not end, and is killed", self.name)
            self.end(signal.SIGKILL)
            await self._process.wait()

    async def _run(self) -> int:
        """Its exit code; negative: the signal that ended it."""
        ours, its = socket.socketpair()
        with its:
            sockets = [its.fileno(), *self._order.listening, *self._order.operators]
            try:
                self._process = await _begun([str(its.fileno()), self._work], sockets)
            except OSError as error:
                ours.close()
                self.problem = f"{self.name} cannot be started ({error.strerror})"
                return NOT_STARTED
        if self._ending.is_set():  # meanwhile
            self._send(self._signal)
        with suppress(OSError):  # it has ended already
            ours.sendall(framed(self._order))
        _, self._peer = await asyncio.get_running_loop().create_connection(lambda: Peer(self._handlers), sock=ours)
        hearing = asyncio.create_task(self._hear())
        code = await self._process.wait()
        hearing.cancel()
        self._up = False
        self._counted, self._last = counted(Merged([self._counted, self._last]).collect()), []
        return code

    async def _hear(self) -> None:
        """Kill it once it has said nothing for so long: counted in questions, since this process may have been stopped itself."""
        silent, most = 0.0, self._order.settings.hung_seconds
        while silent < most:
            try:
                async with asyncio.timeout(PING_SECONDS):
                    if self._up:
                        await self.ask("ping")
                silent = 0.0
                await asyncio.sleep(PING_SECONDS)
            except TimeoutError:
                silent += PING_SECONDS
            except GoneError:
                return
        log.error("%s has not answered for %g s, and is killed", self.name, silent)
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def _has_started(self) -> None:
        self._up, self._started, self.problem = True, True, ""
        self._told()

    async def _has_failed(self, problem: str) -> None:
        self.problem = problem


async def _begun(arguments: Sequence[str], sockets: Sequence[int]) -> asyncio.subprocess.Process:
    """A process that imports from where this one does, and not from the working directory before all else. Raises OSError."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "service.processes", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        pass_fds=sockets,
        start_new_session=True,  # what the terminal sends, the supervisor hears
        env=os.environ | {"PYTHONPATH": path},
    )
