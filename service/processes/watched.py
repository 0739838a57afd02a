"""A process of the service as its supervisor knows it: started, watched, started again, ended."""

import asyncio
import logging
import signal
import socket
import sys
import time
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
ANSWER_SECONDS = 5.0  # that it is waited for when all are asked how they are


class Watched:
    """A process that is there again whenever it has ended.

    Args:
        name: for people.
        work: what it does: "module:function", see `service.processes.child.Work`.
        order: that it is given.
        handlers: what it may ask.

    Attributes:
        problem: why it cannot start, as it says itself; empty for none.
    """

    def __init__(self, name: str, work: str, order: Order, handlers: Handlers) -> None:
        self.name, self.problem = name, ""
        self._work, self._order = work, order
        self._handlers = {**handlers, "started": self._has_started, "failed": self._has_failed}
        self._process: asyncio.subprocess.Process | None = None
        self._peer = Peer({})
        self._up = self._started = self._ending = False
        self._last: list[Metric] = []
        self._counted: list[Metric] = []

    async def keep(self) -> int:
        """Run it until it is ended, and again after it ended by itself; its exit code where it could never start."""
        pause = 0.0
        while True:
            began = time.monotonic()
            code = await self._run()
            if self._ending or (not self._started and code in (BAD_START, NOT_STARTED)):
                return code
            pause = 0.0 if time.monotonic() - began > STEADY_SECONDS else pause
            why = f": {self.problem}" if self.problem else ""
            log.error("%s ended with %d%s; it is started again in %g s", self.name, code, why, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause + 1, LONGEST_PAUSE)

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

    def end(self, number: int = signal.SIGTERM) -> None:
        """Send it a signal; it is not started again."""
        self._ending = True
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

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
            command = [sys.executable, "-m", "service.processes", str(its.fileno()), self._work]
            # of a session of its own: what the terminal sends, the supervisor hears
            self._process = await asyncio.create_subprocess_exec(*command, pass_fds=sockets, start_new_session=True)
        with suppress(OSError):  # it has ended already
            ours.sendall(framed(self._order))
        _, self._peer = await asyncio.get_running_loop().create_connection(lambda: Peer(self._handlers), sock=ours)
        code = await self._process.wait()
        self._up = False
        self._counted, self._last = counted(Merged([self._counted, self._last]).collect()), []
        return code

    async def _has_started(self) -> None:
        self._up, self._started, self.problem = True, True, ""

    async def _has_failed(self, problem: str) -> None:
        self.problem = problem
