"""keyblock-serve with --processes: starts the processes, watches them, and asks all of them where one was asked."""

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
from service.start import BAD, BAD_START, greet, ports
from service.store.opening import claimed
from service.telemetry.merging import Merged, counted
from service.telemetry.metrics import Metrics
from service.terminal import Terminal

log = logging.getLogger(__name__)
FRONT, MODEL = "service.processes.front:front", "service.processes.model:model"
MODEL_SECONDS = 5.0  # that the model's process is given to end, once nobody asks it any more
LAST_STANDARD = 2  # file descriptor: of standard error
BACKLOG = 1024  # fronts whose connection the model's process has not accepted yet


def supervise(settings: Settings, model: str = MODEL, front: str = FRONT) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit code, 2 with one line on stderr when it cannot start.

    Args:
        settings: of the whole service.
        model: what the model's process does, see `Watched`.
        front: the same of the others.
    """
    fill_closed()
    try:
        greet(settings)
        load_keys(settings)
        with claimed(settings), socket.socket(socket.AF_UNIX) as listening, ExitStack() as held:
            place, loads = _shared(settings.processes, held)
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
        return _bad(str(error))


class Supervisor:
    """All processes.

    Args:
        settings: of the whole service.
        listening: where the model is asked.
        loads: file descriptor of what fronts hold, see `loads_file`.
        clients: the sockets of each front.
        operators: the same of the admin port; none of each where there is no such port.
        works: what the model's process does, and what fronts do.
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
            partial(self._restarts, "model"),
            signal_number=END_MODEL,
        )
        self._sockets = [*chain(*clients, *operators)]
        self._fronts = [
            self._front(works[1], Order(settings, path, _numbers(ours), _numbers(theirs), loads, number))
            for number, (ours, theirs) in enumerate(zip(clients, operators, strict=True))
        ]
        self._terminal = Terminal()
        self._one_at_a_time = asyncio.Lock()
        self._ended = asyncio.Event()
        self._reloading: set[asyncio.Task[None]] = set()

    def _front(self, work: str, order: Order) -> Watched:
        handlers = {"families": self.families, "reload": self.reload}
        ended = partial(self._front_ended, self._loads[order.number])
        return Watched(f"front process {order.number + 1}", work, order, handlers, self._changed.set, ended, waits_for=self._model)

    def _front_ended(self, load: Load, why: str) -> None:
        """Give back what it held: nobody else does."""
        load.requests = load.documents = load.bytes = 0
        self._restarts("front", why)

    def _restarts(self, process: str, why: str) -> None:
        self._metrics.add("restarts", process=process, why=why)

    async def run(self) -> int:
        """Keep all processes running until a signal comes, or one of them can never start; the exit code."""
        self._listen()
        keeping = [asyncio.create_task(one.keep()) for one in (self._model, *self._fronts)]
        ended, agreeing = asyncio.create_task(self._ended.wait()), asyncio.create_task(self._agree())
        done, _ = await asyncio.wait([ended, *keeping], return_when=asyncio.FIRST_COMPLETED)
        code = 0 if ended in done else max(task.result() for task in keeping if task in done)
        agreeing.cancel()
        await self._end()
        for task in (ended, *keeping):
            task.cancel()
        await asyncio.gather(ended, agreeing, *keeping, return_exceptions=True)
        problem = next((one.problem for one in (self._model, *self._fronts) if one.problem), "")
        return _bad(problem) if code == BAD_START else code

    async def families(self) -> list[Metric]:
        """The metrics of all processes together."""
        theirs = await asyncio.gather(*(one.families() for one in (self._model, *self._fronts)))
        return Merged([counted(self._metrics.registry.collect()), *theirs]).collect()

    async def reload(self) -> Reloaded:
        """Have all fronts read bundles and keys again, then the model's process give up what nobody serves any more.

        A front that is just started again reads them by itself. Raises ReloadError: the first front could not, then nothing has
        changed; or a later one, or one that ended over it, then it says so, and those after it are left as they are.
        """
        async with self._one_at_a_time:
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
                    raise self._not_all(front, error, len(done)) from None
            if not done:
                raise ReloadError("no front process is running: try again")
            await self._settle(list(done))
            return next(iter(done.values()))

    def _not_all(self, front: Watched, error: Exception, done: int) -> ReloadError:
        """What is told where so many have reloaded, and then this one could not."""
        ended = isinstance(error, GoneError)  # and reads what is there by then
        problem = f"{front.name} ended meanwhile, and is started again" if ended else str(error)
        if not (done or ended):
            return ReloadError(problem)
        return ReloadError(f"{problem}; {done} of {len(self._fronts)} processes serve it", partly=True)

    async def _settle(self, fronts: Sequence[Watched]) -> None:
        """The model's process is to give up what these fronts do not serve any more; until then it has more open than it needs."""
        try:
            serving: Serving = await fronts[0].ask("serving")
            await self._model.ask("serve", sorted(serving.graphs))
        except (GoneError, EngineError, EngineDeadError, UnexpectedError) as error:
            log.warning("reloaded, but the model's process keeps what it had open: %s", error)

    async def differ(self) -> bool:
        """Whether one process has read other bundles or keys than another. Raises GoneError where one of them is not running."""
        names = await self._model.ask("names")
        first, *others = await asyncio.gather(*(front.ask("serving") for front in self._fronts))
        return names != first.graphs or any(other != first for other in others)

    async def _agree(self) -> None:
        """Reload whenever a process that has started has read what others have not: it was there only after they had started."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            pause = 0.0
            with suppress(GoneError, UnexpectedError):  # it says so when it has started
                while await self.differ():
                    await asyncio.sleep(pause)
                    pause = min(2 * pause + 1, LONGEST_PAUSE)
                    log.warning("bundles or keys are not those that all processes have read: they are read again")
                    await self._quietly()

    def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop, number)
        loop.add_signal_handler(signal.SIGHUP, self._hung_up)

    def _stop(self, number: int) -> None:
        """The first signal lets fronts finish what is in flight; a SIGINT after it does not."""
        if self._ended.is_set():
            for front in self._fronts:
                front.end(number)
        self._ended.set()

    def _hung_up(self) -> None:
        """SIGHUP: the terminal was closed, or somebody asks for a reload."""
        if self._terminal.closed:
            self._stop(signal.SIGTERM)
            return
        task = asyncio.create_task(self._quietly())
        self._reloading.add(task)
        task.add_done_callback(self._reloading.discard)

    async def _quietly(self) -> None:
        try:
            await self.reload()
        except ReloadError as error:
            log.error("not reloaded: %s", error)

    async def _end(self) -> None:
        """End the fronts, then the model that they ask."""
        for one in self._sockets:
            one.close()  # who connects now is refused, as soon as the fronts do not listen any more
        for front in self._fronts:
            front.end()
        await asyncio.gather(*(front.ended(self._settings.shutdown_seconds) for front in self._fronts))
        self._model.end()
        await self._model.ended(MODEL_SECONDS)


def _numbers(sockets: list[socket.socket]) -> list[int]:
    return [one.fileno() for one in sockets]


def _shared(fronts: int, held: ExitStack) -> tuple[Path, int]:
    """The directory of the socket, and the descriptor of the file of what fronts hold; both go with `held`. Raises ListenError."""
    try:
        place = Path(tempfile.mkdtemp(prefix="keyblock-"))  # nobody else may look into it
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
    listening.listen(BACKLOG)  # so that fronts wait for a process that is not there yet, or was killed


def fill_closed() -> None:
    """Standard input, output and error that are closed lead nowhere: else the next files that are opened are taken for them."""
    while (number := os.open(os.devnull, os.O_RDWR)) <= LAST_STANDARD:
        os.set_inheritable(number, True)
    os.close(number)


def _bad(problem: str) -> int:
    print(f"{PROGRAM}: {' '.join(problem.split())}", file=sys.stderr)
    return BAD_START
