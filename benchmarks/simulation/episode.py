"""An episode: a service from its start to the end of its last request, with faults. A seed decides all of it."""

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager, suppress
from random import Random
from typing import Any, NamedTuple

from benchmarks.simulation.clients import Clients
from benchmarks.simulation.device import Device
from benchmarks.simulation.faults import DAY, Faults, drawn
from benchmarks.simulation.invariants import Checks, ViolationError
from benchmarks.simulation.loop import MOST_AT_ONCE
from benchmarks.simulation.machine import SimulatedMachine
from benchmarks.simulation.ranker import MODELS, salt_of
from benchmarks.simulation.service import Service
from benchmarks.simulation.store import SimulatedStore
from benchmarks.simulation.traffic import Traffic, climate
from benchmarks.simulation.upstream import SimulatedUpstream

REQUESTS = 1000  # per episode
BURST = 100
POISON_SHARE = 0.1
PROBED_EACH = 20  # about how many requests come between two health checks
START_SECONDS, AT_ONCE_SECONDS = 0.1, 0.001
MOST_CLOSING_SECONDS = 20.0  # seconds that k8s/ allows beyond `shutdown_seconds`
PATIENCE_SECONDS = 10_000.0  # about the longest time after the last request
MOST_RELOADS = 4  # reloads at about the same time


class Report(NamedTuple):
    """Counts of an episode.

    Attributes:
        outcomes: number of requests by outcome.
        faults: number of faults by kind.
        events: events of the machine.
        batches: batches of the device.
        seconds: virtual seconds.
    """

    outcomes: Counter[str]
    faults: Counter[str]
    events: int
    batches: int
    seconds: float


class Episode:
    """The episode of a seed.

    Args:
        seed: seed that decides everything.
        requests: number of requests.
    """

    def __init__(self, seed: int, requests: int = REQUESTS) -> None:
        self.seed, self._requests = seed, requests
        self._random = Random(seed)
        self._climate = climate(self._random)
        self.machine = machine = SimulatedMachine(Random(self._random.random()), interleaves=self._climate.interleaves)
        self._traffic = Traffic(Random(self._random.random()), self._climate)
        self.device = Device(machine, Random(self._random.random()), self._climate.token_seconds)
        self.store = SimulatedStore(machine)
        self.service = Service(machine, self.device, self._climate, self.store)
        self.checks = Checks(machine, self.service.settings)
        machine.carrier = self.upstream = SimulatedUpstream(machine, Random(self._random.random()), self.service.settings)
        occasions = {
            "burst": self._burst,
            "reloads": self._reloads,
            "reload fails": self._reloads,
            "thread dies": lambda _: setattr(self.device, "dies", True),
            "device hangs": lambda _: setattr(self.device, "hangs", True),
            "terminated": lambda _: self._begin(self._restart()),
        }
        self.faults = Faults((machine, self.device, self.store, self.upstream, self.service.files), occasions)
        self.clients = Clients(machine, self.service, self.checks, self.faults, self.upstream)
        self._sent, self._generation, self._restarting = 0, 1, False
        self._tasks: set[asyncio.Task[None]] = set()

    def run(self) -> Report:
        """Run the episode to its end. Raises ViolationError, with the seed, the command that replays it and the last events."""
        loop, checks = self.machine.loop, self.checks
        try:
            with self.machine.standing_in(), self._abandoning():
                self._start()
                self._begin(self._open())
                while loop.step():
                    checks.after_event()
                loop.forget()
                checks.at_the_end(self._sent, self.store, loop.seconds)
                if wrong := (*self.store.wrong, *self.upstream.wrong):
                    raise ViolationError(wrong[0])
        finally:
            self.machine.end()
        kinds = Counter(fault.kind for fault in self.faults.begun)
        return Report(Counter(checks.outcomes.values()), kinds, loop.n_events, self.device.batches, loop.seconds)

    @contextmanager
    def _abandoning(self) -> Iterator[None]:
        """Cancel unfinished tasks after a violation. Otherwise Python would close them later, in any order."""
        try:
            yield
        except Exception as error:
            violation = ViolationError(self._described(error))
            for task in list(self._tasks):
                task.cancel()
            for _ in range(MOST_AT_ONCE):
                with suppress(Exception):
                    if not (self._tasks and self.machine.loop.step()):
                        break
            raise violation from error

    def _described(self, error: Exception) -> str:
        what = str(error) if isinstance(error, ViolationError) else f"the service stumbles: {error!r}"
        command = f"python -m benchmarks.simulation --seed {self.seed} --requests {self._requests}"
        lines = [f"{self.machine.now():12.6f} s  {what}", f"again: {command}", f"{self._climate}", *self.checks.trace.lines()]
        return "\n".join(lines)

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        task: asyncio.Task[None] = self.machine.loop.create_task(coroutine)
        self._tasks.add(task)  # the loop keeps no reference to it
        task.add_done_callback(self._ended)
        return task

    def _ask(self, coroutine: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Start a client's task. A process that ends waits for it."""
        task = self._begin(coroutine)
        self.clients.in_flight.add(task)
        return task

    def _ended(self, task: "asyncio.Task[None]") -> None:
        """Forget a task that has ended. Raises its error, unless it was cancelled."""
        self._tasks.discard(task)
        self.clients.in_flight.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            raise error

    def _start(self) -> None:
        self.device.start()
        self.service.start()
        self.checks.watch(self.service.ranker)
        self.checks.trace.add("started")

    async def _open(self) -> None:
        ranker = self.service.ranker
        while not ranker.worker.ready:
            await asyncio.sleep(0.01)
        length = self._requests * self._traffic.mean_gap
        for fault in drawn(self._random, self.machine.now(), length):
            self.faults.schedule(fault)
        self._begin(self._supervise())
        while self._sent < self._requests:
            self._request()
            if self._random.random() < self._climate.writes:
                self._write()
            await asyncio.sleep(self._traffic.gap())

    async def _supervise(self) -> None:
        """End a process whose model thread is dead or hangs, and start another; at the end, end the last one."""
        pause = PROBED_EACH * self._traffic.mean_gap
        while self._sent < self._requests or self.clients.in_flight or self._restarting:
            await asyncio.sleep(pause)
            pause *= 1.0 if self._sent < self._requests else 1.5
            if pause > PATIENCE_SECONDS:
                raise ViolationError(f"{len(self.clients.in_flight)} requests are never answered")
            self._check_health()
            if not (self.service.ranker.worker.alive or self._restarting):
                await self._restart()
        await self._end()

    def _check_health(self) -> None:
        """Check that health reports a model thread that is dead or hangs."""
        device, hung_after = self.device, self.service.settings.hung_seconds
        hung = device.hangs_since is not None and self.machine.now() - device.hangs_since > hung_after
        if (device.dead or hung) and self.service.ranker.worker.alive and not self._restarting:
            raise ViolationError(f"the model's thread {'is dead' if device.dead else 'hangs'}, and is said to be alive")
        if device.dead and any(not job.finished for job in self.service.ranker.worker.jobs()):
            raise ViolationError("the model's thread is dead, and a request still waits for it")

    async def _restart(self) -> None:
        if self._restarting:
            return
        self._restarting = True
        await self._end()
        await asyncio.sleep(START_SECONDS)
        while self.service.files.broken:  # the process exits
            await asyncio.sleep(START_SECONDS)
        self._start()
        self._restarting = False

    async def _end(self) -> None:
        """Handle SIGTERM: admit no more requests, and give those in flight a number of seconds."""
        service, in_flight = self.service, self.clients.in_flight
        self.checks.trace.add("terminated", f"in flight: {len(in_flight)}")
        service.listens = False
        if in_flight:
            _, late = await asyncio.wait(in_flight, timeout=service.settings.shutdown_seconds)
            for task in sorted(late, key=hash):
                task.cancel()
            _, stays = await asyncio.wait(late, timeout=AT_ONCE_SECONDS) if late else (late, late)
            if stays:
                raise ViolationError(f"{len(stays)} requests do not end when the process does")
        self.checks.at_rest()
        closing = self.machine.now()
        await service.end()
        if (seconds := self.machine.now() - closing) > MOST_CLOSING_SECONDS:
            raise ViolationError(f"the process ends {seconds:.1f} s after its last request; {MOST_CLOSING_SECONDS} s is the bound")
        self.checks.trace.add("ended")

    def _request(self) -> None:
        self._sent += 1
        ask = self._traffic.ask()
        if self.faults.poisons and ask.keys and self._random.random() < POISON_SHARE:
            self.device.poison.add(ask.keys[0])
        task = self._ask(self.clients.exchange(ask))
        if ask.leaves is not None:
            self.machine.loop.call_later(ask.leaves, task.cancel)

    def _write(self) -> None:
        number = self._traffic.new_key() if self._random.random() < 0.9 else 0
        seconds = self._random.choice((None, None, 0.01, 2 * DAY)) if number else None
        self._ask(self.clients.store(self._traffic.identity(), number, seconds))

    def _burst(self, _amount: float) -> None:
        for _ in range(min(BURST, self._requests - self._sent)):
            self._request()

    def _reloads(self, amount: float) -> None:
        """Replace the bundles and ask for a reload, a few times."""
        for _ in range(1 + int(amount * MOST_RELOADS)):
            self.machine.loop.call_later(self._random.random() * amount, self._reload)

    def _reload(self) -> None:
        self._generation += 1
        for name in MODELS:
            if self._random.random() < 0.5:
                self.service.files.salts[name] = salt_of(name, self._generation)
        self._ask(self.clients.reload())


def run(requests: int, seed: int) -> Report | str:
    """The report of an episode, or the violation that ended it. Called in this process or another."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)  # the service logs failures, and here they are intended
    try:
        return Episode(seed, requests).run()
    except ViolationError as error:
        return str(error)
    finally:
        logging.disable(disabled)
