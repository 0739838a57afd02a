"""keyblock-serve with --processes: starts and watches the processes, and passes requests for one process on to all of them."""

import asyncio
import logging
import os
import shutil
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import chain
from pathlib import Path

from prometheus_client import Metric

from service.engine.errors import EngineDeadError, EngineError
from service.http.listeners import ListenError, claimed_ports, spread
from service.keys.keys import load_keys
from service.options import PROGRAM
from service.processes.child import END_MODEL, Order, Serving
from service.processes.loads import loads_file, mapped
from service.processes.peer import UnexpectedError
from service.processes.watched import LONGEST_PAUSE, AwayError, Watched
from service.ranking.admission import Load
from service.ranking.reload import Reloaded, ReloadError
from service.remote.replicas import GoneError
from service.settings import Settings
from service.start import BAD, BAD_START, log_start, ports
from service.store.opening import claimed
from service.telemetry.merging import Merged, counted
from service.telemetry.metrics import Metrics
from service.terminal import Terminal

log = logging.getLogger(__name__)
FRONT, MODEL = "service.processes.front:front", "service.processes.model:model"
MODEL_SECONDS = 5.0  # that the model's process gets to end, after all fronts have ended
LAST_STANDARD = 2  # file descriptor: of standard error
BACKLOG = 1024  # fronts whose connection the model's process has not accepted yet


def supervise(settings: Settings, model: str = MODEL, front: str = FRONT) -> int:
    """Serve until SIGTERM or SIGINT. Returns the exit code, 2 with one line on stderr if the service cannot start.

    Args:
        settings: of the whole service.
        model: the work of the model's process, see `Watched`.
        front: the work of the others.
    """
    open_standard_streams()
    try:
        log_start(settings)
        load_keys(settings)
        with claimed(settings), socket.socket(socket.AF_UNIX) as listening, ExitStack() as held:
            place, loads = _make_shared(settings.processes, held)
            bound = ports(settings)
            for one in chain(*bound):
                held.enter_context(one)
            held.enter_context(claimed_ports(chain(*bound)))
            clients, operators = (spread(sockets, settings.processes) for sockets in bound)
            for one in chain(*clients, *operators):
                held.enter_context(one)
            _listen(listening, place / "model")
            return asyncio.run(Supervisor(settings, listening, loads, clients, operators, (model, front)).run())
    except BAD as error:
        return _report_problem(str(error))


class Supervisor:
    """Runs all processes.

    Args:
        settings: of the whole service.
        listening: socket of the model's process.
        loads: file descriptor of the fronts' loads, see `loads_file`.
        clients: the sockets of each front.
        operators: the sockets of each front at the admin port; empty lists if there is no such port.
        works: the work of the model's process, and of the fronts.
    """

    def __init__(
        self,
        settings: Settings,
        listening: socket.socket,
        loads: int,
        clients: Sequence[list[socket.socket]],
        operators: Sequence[list[socket.socket]],
        works: tuple[str, str] = (MODEL, FRONT),
    ) -> None:
        self._settings = settings
        path = Path(listening.getsockname())
        self._changed = asyncio.Event()
        self._loads = mapped(loads, settings.processes)
        self._metrics = Metrics()
        self._model = Watched(
            "the model's process",
            works[0],
            Order(settings, path, [listening.fileno()], []),
            {},
            self._changed.set,
            partial(self._count_restart, "model"),
            signal_number=END_MODEL,
        )
        self._sockets = [*chain(*clients, *operators)]
        self._fronts = [
            self._front(
                works[1], Order(settings, path, _descriptors(client_sockets), _descriptors(operator_sockets), loads, number)
            )
            for number, (client_sockets, operator_sockets) in enumerate(zip(clients, operators, strict=True))
        ]
        self._terminal = Terminal()
        self._lock = asyncio.Lock()
        self._ended = asyncio.Event()
        self._reloading: set[asyncio.Task[None]] = set()

    def _front(self, work: str, order: Order) -> Watched:
        handlers = {"families": self.families, "reload": self.reload}
        ended = partial(self._front_ended, self._loads[order.number])
        return Watched(f"front process {order.number + 1}", work, order, handlers, self._changed.set, ended, waits_for=self._model)

    def _front_ended(self, load: Load, why: str) -> None:
        """Clear the load of a front that has ended: no other process does."""
        load.requests = load.documents = load.bytes = 0
        self._count_restart("front", why)

    def _count_restart(self, process: str, why: str) -> None:
        self._metrics.add("restarts", process=process, why=why)

    async def run(self) -> int:
        """Keep all processes running until a signal comes, or one of them can never start. Returns the exit code."""
        self._listen()
        keeping = [asyncio.create_task(one.keep_running()) for one in (self._model, *self._fronts)]
        ended, agreeing = asyncio.create_task(self._ended.wait()), asyncio.create_task(self._keep_agreed())
        done, _ = await asyncio.wait([ended, *keeping], return_when=asyncio.FIRST_COMPLETED)
        code = 0 if ended in done else max(task.result() for task in keeping if task in done)
        agreeing.cancel()
        await self._end()
        for task in (ended, *keeping):
            task.cancel()
        await asyncio.gather(ended, agreeing, *keeping, return_exceptions=True)
        problem = next((one.problem for one in (self._model, *self._fronts) if one.problem), "")
        return _report_problem(problem) if code == BAD_START else code

    async def families(self) -> list[Metric]:
        """The metrics of all processes together."""
        theirs = await asyncio.gather(*(one.families() for one in (self._model, *self._fronts)))
        return Merged([counted(self._metrics.registry.collect()), *theirs]).collect()

    async def reload(self) -> Reloaded:
        """Let all fronts read bundles and keys again, then the model's process drop the bundles that none serves any more.

        A front that is being started again reads them anyway. Raises ReloadError if the first front cannot reload: then nothing has
        changed. Raises it too if a later one cannot, or ends: then the message says so, and the fronts after it do not reload.
        """
        async with self._lock:
            for front in self._fronts:
                if front.in_doubt:
                    raise ReloadError(f"{front.name} ended while it read them, and has not started again yet")
            done: dict[Watched, Reloaded] = {}
            for front in self._fronts:
                try:
                    done[front] = await front.ask("reload")
                except AwayError:
                    log.warning("%s is started again, and reads bundles and keys then", front.name)
                except (GoneError, ReloadError, UnexpectedError) as error:
                    raise self._partial_error(front, error, len(done)) from None
            if not done:
                raise ReloadError("no front process is running: try again")
            await self._release_unused(list(done))
            return next(iter(done.values()))

    def _partial_error(self, front: Watched, error: Exception, done: int) -> ReloadError:
        """The error if `done` fronts have reloaded, and this one could not."""
        ended = isinstance(error, GoneError)  # then it reads the current files when it starts again
        problem = f"{front.name} ended meanwhile, and is started again" if ended else str(error)
        if not (done or ended):
            return ReloadError(problem)
        return ReloadError(f"{problem}; {done} of {len(self._fronts)} processes serve it", partly=True)

    async def _release_unused(self, fronts: Sequence[Watched]) -> None:
        """Let the model's process drop bundles that these fronts do not serve any more; until then it holds more than it needs."""
        try:
            serving: Serving = await fronts[0].ask("serving")
            await self._model.ask("serve", sorted(serving.graphs))
        except (GoneError, EngineError, EngineDeadError, UnexpectedError) as error:
            log.warning("reloaded, but the model's process keeps what it had open: %s", error)

    async def differ(self) -> bool:
        """Whether the processes have read different bundles or keys. Raises GoneError if one of them is not running."""
        names = await self._model.ask("names")
        first, *others = await asyncio.gather(*(front.ask("serving") for front in self._fronts))
        return names != first.graphs or any(other != first for other in others)

    async def _keep_agreed(self) -> None:
        """Reload whenever a newly started process has read newer files than the rest."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            pause = 0.0
            with suppress(GoneError, UnexpectedError):  # a process that is away reports its start later
                while await self.differ():
                    await asyncio.sleep(pause)
                    pause = min(2 * pause + 1, LONGEST_PAUSE)
                    log.warning("bundles or keys are not those that all processes have read: they are read again")
                    await self._reload_quietly()

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._on_sighup)

    def _stop(self, number: int) -> None:
        """End all: the first signal lets fronts finish their requests; a SIGINT after it does not."""
        if self._ended.is_set():
            for front in self._fronts:
                front.end(number)
        self._ended.set()

    def _on_sighup(self) -> None:
        """SIGHUP: end if the terminal was closed; otherwise start a reload."""
        if self._terminal.closed:
            self._stop(signal.SIGTERM)
            return
        task = asyncio.create_task(self._reload_quietly())
        self._reloading.add(task)
        task.add_done_callback(self._reloading.discard)

    async def _reload_quietly(self) -> None:
        try:
            await self.reload()
        except ReloadError as error:
            log.error("not reloaded: %s", error)

    async def _end(self) -> None:
        """End the fronts, then the model's process, which they need."""
        for one in self._sockets:
            one.close()  # new connections are refused as soon as the fronts stop listening
        for front in self._fronts:
            front.end()
        await asyncio.gather(*(front.wait_for_end(self._settings.shutdown_seconds) for front in self._fronts))
        self._model.end()
        await self._model.wait_for_end(MODEL_SECONDS)


def _descriptors(sockets: list[socket.socket]) -> list[int]:
    return [one.fileno() for one in sockets]


def _make_shared(fronts: int, held: ExitStack) -> tuple[Path, int]:
    """Make the socket's directory and the file of the fronts' loads; both end with `held`. Raises ListenError.

    Returns:
        The directory, and the file's descriptor.
    """
    try:
        place = Path(tempfile.mkdtemp(prefix="keyblock-"))  # readable for this user only
        held.callback(shutil.rmtree, place, ignore_errors=True)
        return place, held.enter_context(loads_file(fronts)).fileno()
    except OSError as error:
        problem = f"processes need a directory for what they share ({error.strerror})"
        raise ListenError(f"{problem}: set TMPDIR to one that can be written") from None


def _listen(listening: socket.socket, path: Path) -> None:
    """Raises ListenError."""
    try:
        listening.bind(str(path))
    except OSError as error:
        raise ListenError(
            f"processes cannot have a socket at {path} ({error.strerror or error}): set TMPDIR to a shorter path"
        ) from None
    listening.listen(BACKLOG)  # so that fronts can connect before the process is there, or after it was killed


def open_standard_streams() -> None:
    """Open closed standard streams on the null device: otherwise the next opened files would be taken for them."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= LAST_STANDARD:
        os.set_inheritable(number, True)
    os.close(number)


def _report_problem(problem: str) -> int:
    print(f"{PROGRAM}: {' '.join(problem.split())}", file=sys.stderr)
    return BAD_START
