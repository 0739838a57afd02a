"""A process of the service as its supervisor knows it: started, watched, started again, ended."""

import asyncio
import logging
import math
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


class AwayError(GoneError):
    """The process does not run, or has not started yet: it was not asked."""


class Watched:
    """A process that is there again whenever it has ended.

    Args:
        name: for people.
        work: what it does: "module:function", see `service.processes.child.Work`.
        order: that it is given.
        handlers: what it may ask.
        started: called whenever it has started.
        ended: called with one of RESTARTED whenever it has ended and is going to be started again.
        signal_number: that ends it.
        waits_for: the process that this one asks while it loads: no time counts while that one loads itself.

    Attributes:
        problem: why it cannot start, as it says itself; empty for none.
        in_doubt: whether one has ended while it loaded, and none has started since: what it read may be at fault.
    """

    def __init__(
        self,
        name: str,
        work: str,
        order: Order,
        handlers: Handlers,
        started: Callable[[], None] = lambda: None,
        ended: Callable[[str], None] = lambda _: None,
        signal_number: int = signal.SIGTERM,
        waits_for: "Watched | None" = None,
    ) -> None:
        self.name, self.problem, self.in_doubt = name, "", False
        self._work, self._order, self._signal = work, order, signal_number
        self._on_start, self._on_end, self._waits_for = started, ended, waits_for
        self._handlers = {**handlers, "started": self._has_started, "failed": self._has_failed, "loading": self._is_loading}
        self._process: asyncio.subprocess.Process | None = None
        self._peer = Peer({})
        self._up = self._started = False
        self._loading = 0  # of what it says that it loads at the moment
        self._silent = 0.0  # seconds since it was last seen to get on
        self._killed = ""  # why this process has killed it
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
            self._on_end(self._killed or ("killed" if code < 0 else "ended"))
            await asyncio.sleep(pause)
            pause = min(2 * pause + 1, LONGEST_PAUSE)
        return 0

    @property
    def loading(self) -> bool:
        """Whether it reads bundles or warms them up, at its start or for a reload."""
        return not self._up or self._loading > 0

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call it. Raises AwayError, GoneError where it ends before it answers, and what the call raises."""
        if not self._up:
            raise AwayError(f"{self.name} is not running")
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
        self._killed, self._loading, self._silent = "", 0, 0.0
        try:
            self._process, ours = await self._connected()
        except OSError as error:
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
        self._peer.close()  # what it said last is not of the next one
        self.in_doubt, self._up = self.loading, False
        self._counted, self._last = counted(Merged([self._counted, self._last]).collect()), []
        return code

    async def _connected(self) -> tuple[asyncio.subprocess.Process, socket.socket]:
        """Start it; this end of the connection to it. Raises OSError, also where the system has no files left, or no memory."""
        ours, its = socket.socketpair()
        with its:
            try:
                return await _begun([str(its.fileno()), self._work], [its.fileno(), *self._order.descriptors]), ours
            except OSError:
                ours.close()
                raise

    async def _hear(self) -> None:
        """Kill it once it does not get on: counted in questions, since this process may have been stopped itself.

        One that is loading may be silent, since who opens a graph holds the interpreter lock; and where it answers, the thread that
        loads may be stuck all the same.
        """
        while self._silent < self._patience():
            self._silent += PING_SECONDS
            try:
                async with asyncio.timeout(PING_SECONDS):
                    if self._up:
                        await self.ask("ping")
            except TimeoutError:
                continue
            except GoneError:
                return
            await asyncio.sleep(PING_SECONDS)
            if not self.loading or (self._waits_for is not None and self._waits_for.loading):
                self._silent = 0.0
        self._killed, what = ("stuck", "been loading") if self.loading else ("silent", "not answered")
        log.error("%s has %s for %g s, and is killed", self.name, what, self._silent)
        self._send(signal.SIGKILL)

    def _patience(self) -> float:
        """Seconds that it may take to get on."""
        settings = self._order.settings
        return (settings.load_seconds or math.inf) if self.loading else settings.hung_seconds

    async def _is_loading(self, begins: bool) -> None:
        """It begins to load something, or is done with it."""
        self._loading += 1 if begins else -1
        self._silent = 0.0

    def _send(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def _has_started(self) -> None:
        self._up, self._started, self._silent = True, True, 0.0
        self.problem, self.in_doubt = "", False
        self._on_start()

    async def _has_failed(self, problem: str) -> None:
        self.problem = problem


async def _begun(arguments: Sequence[str], descriptors: Sequence[int]) -> asyncio.subprocess.Process:
    """A process that imports from where this one does, and not from the working directory before all else. Raises OSError."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "service.processes", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        pass_fds=descriptors,
        start_new_session=True,  # what the terminal sends, the supervisor hears
        env=os.environ | {"PYTHONPATH": path},
    )
