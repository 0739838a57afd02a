"""The supervisor's view of a process of the service: starts it, watches it, starts it again, ends it."""

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
LONGEST_PAUSE = 30.0  # seconds until a process that ended is started again; the first restart is immediate
STEADY_SECONDS = 60.0  # a process that has run for this long counts as working
KILL_SECONDS = 10.0  # that a process gets to end, besides the time for its requests in flight
MOST_FAILURES = 3  # of a process that has never started, until it is given up
PING_SECONDS = 1.0  # between two pings
ANSWER_SECONDS = 5.0  # that a process gets to send its metrics


class AwayError(GoneError):
    """The process does not run, or has not started yet, so the call was not sent."""


class Watched:
    """A process that is started again whenever it ends.

    Args:
        name: for messages.
        work: the function that it runs: "module:function", see `service.processes.child.Work`.
        order: sent to the process.
        handlers: the calls that it may make.
        on_start: called whenever it has started.
        on_end: called with one of RESTARTED whenever it has ended and is going to be started again.
        signal_number: ends the process.
        waits_for: the process that this one calls while it loads; while that one loads itself, no time counts.

    Attributes:
        problem: why it cannot start, in its own words; empty for none.
        in_doubt: whether a process has ended while it loaded, and none has started since: the files may be at fault.
    """

    def __init__(
        self,
        name: str,
        work: str,
        order: Order,
        handlers: Handlers,
        on_start: Callable[[], None] = lambda: None,
        on_end: Callable[[str], None] = lambda _: None,
        signal_number: int = signal.SIGTERM,
        waits_for: "Watched | None" = None,
    ) -> None:
        self.name, self.problem, self.in_doubt = name, "", False
        self._work, self._order, self._signal = work, order, signal_number
        self._on_start, self._on_end, self._waits_for = on_start, on_end, waits_for
        self._handlers = {**handlers, "started": self._has_started, "failed": self._has_failed, "loading": self._is_loading}
        self._process: asyncio.subprocess.Process | None = None
        self._peer = Peer({})
        self._up = self._started = False
        self._loading = 0  # loads that it has reported and not finished
        self._silent_seconds = 0.0  # seconds since the last sign of progress
        self._killed = ""  # why the supervisor has killed it
        self._ending = asyncio.Event()
        self._last: list[Metric] = []
        self._counted: list[Metric] = []

    async def keep_running(self) -> int:
        """Run the process until `end`, and again whenever it ends by itself. Returns its exit code if it can never start."""
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
        """Whether the process reads bundles or warms them up, at its start or for a reload."""
        return not self._up or self._loading > 0

    async def ask(self, method: str, *arguments: Any) -> Any:
        """Call the process. Raises AwayError, GoneError if it ends before it answers, and what the call raises."""
        if not self._up:
            raise AwayError(f"{self.name} is not running")
        return await self._peer.ask(method, *arguments)

    async def families(self) -> list[Metric]:
        """Its metrics, or the last known ones if it does not answer, plus the counts of earlier processes in its place."""
        with suppress(GoneError, TimeoutError):
            async with asyncio.timeout(ANSWER_SECONDS):
                self._last = await self.ask("families")
        return Merged([self._counted, self._last]).collect()

    def end(self, number: int | None = None) -> None:
        """Send a signal, by default the one that ends the process; it is not started again."""
        self._ending.set()
        self._send(self._signal if number is None else number)

    async def wait_for_end(self, seconds: float) -> None:
        """Wait for the end of the process for `seconds` and KILL_SECONDS; then kill it."""
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
        """Run the process once. Returns its exit code; if negative, the signal that ended it."""
        self._killed, self._loading, self._silent_seconds = "", 0, 0.0
        try:
            self._process, ours = await self._start_connected()
        except OSError as error:
            self.problem = f"{self.name} cannot be started ({error.strerror})"
            return NOT_STARTED
        if self._ending.is_set():  # `end` was called while it started
            self._send(self._signal)
        with suppress(OSError):  # the process has ended already
            ours.sendall(framed(self._order))
        _, self._peer = await asyncio.get_running_loop().create_connection(lambda: Peer(self._handlers), sock=ours)
        watching = asyncio.create_task(self._watch())
        code = await self._process.wait()
        watching.cancel()
        self._peer.close()  # its last messages must not count for the next process
        self.in_doubt, self._up = self.loading, False
        self._counted, self._last = counted(Merged([self._counted, self._last]).collect()), []
        return code

    async def _start_connected(self) -> tuple[asyncio.subprocess.Process, socket.socket]:
        """Start the process. Returns it with this end of the connection. Raises OSError, also when files or memory run out."""
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                return await _start([str(theirs.fileno()), self._work], [theirs.fileno(), *self._order.descriptors]), ours
            except OSError:
                ours.close()
                raise

    async def _watch(self) -> None:
        """Kill the process once it makes no progress. Time is counted in pings, since the supervisor may have been stopped itself.

        A loading process may be silent, since opening a graph holds the interpreter lock. If it answers, the thread that loads may
        be stuck all the same.
        """
        while self._silent_seconds < self._patience():
            self._silent_seconds += PING_SECONDS
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
                self._silent_seconds = 0.0
        self._killed, activity = ("stuck", "been loading") if self.loading else ("silent", "not answered")
        log.error("%s has %s for %g s, and is killed", self.name, activity, self._silent_seconds)
        self._send(signal.SIGKILL)

    def _patience(self) -> float:
        """Seconds that the process may make no progress."""
        settings = self._order.settings
        return (settings.load_seconds or math.inf) if self.loading else settings.hung_seconds

    async def _is_loading(self, begins: bool) -> None:
        """Note that the process begins to load something, or has finished."""
        self._loading += 1 if begins else -1
        self._silent_seconds = 0.0

    def _send(self, number: int) -> None:
        if self._process is not None and self._process.returncode is None:
            self._process.send_signal(number)

    async def _has_started(self) -> None:
        self._up, self._started, self._silent_seconds = True, True, 0.0
        self.problem, self.in_doubt = "", False
        self._on_start()

    async def _has_failed(self, problem: str) -> None:
        self.problem = problem


async def _start(arguments: Sequence[str], descriptors: Sequence[int]) -> asyncio.subprocess.Process:
    """Start a process that imports from the same places as this one, and not first from the working directory. Raises OSError."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "service.processes", *arguments),
        stdin=asyncio.subprocess.DEVNULL,
        pass_fds=descriptors,
        start_new_session=True,  # only the supervisor gets the terminal's signals
        env=os.environ | {"PYTHONPATH": path},
    )
