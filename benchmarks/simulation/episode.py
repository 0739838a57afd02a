"""An episode: a service from its start through its requests and faults until nothing is left to do, all of it decided by a seed."""

from asyncio import CancelledError
from collections import Counter
from collections.abc import Coroutine
from random import Random
from typing import Any, NamedTuple

from benchmarks.simulation.clients import Clients
from benchmarks.simulation.faults import DAY, Faults, drawn
from benchmarks.simulation.invariants import Checks, ViolationError
from benchmarks.simulation.machine import Process, SimulatedMachine
from benchmarks.simulation.service import Service
from benchmarks.simulation.traffic import STORED_IDS, Traffic, climate

REQUESTS = 1000  # of an episode
BURST = 100
POISON_SHARE = 0.1
WRITE_SHARE = 0.1  # writes for each request


class Report(NamedTuple):
    """What an episode was.

    Attributes:
        outcomes: how many requests ended how.
        faults: how many of each kind.
        events: of the machine.
        batches: of the device.
        seconds: virtual.
    """

    outcomes: Counter[str]
    faults: Counter[str]
    events: int
    batches: int
    seconds: float


class Episode:
    """One seed's.

    Args:
        seed: decides everything.
        requests: that come.
    """

    def __init__(self, seed: int, requests: int = REQUESTS) -> None:
        self.seed, self._requests = seed, requests
        self._random = Random(seed)
        self.machine = SimulatedMachine()
        self._climate = climate(self._random)
        self._traffic = Traffic(Random(self._random.random()), self._climate)
        self.service = Service(self.machine, Random(self._random.random()), self._climate)
        service = self.service
        self.checks = Checks(self.machine, service.admission, service.rounds, service.settings)
        service.device.submitted, service.device.taken = self.checks.submits, self.checks.round_begins
        occasions = {
            "burst": self._burst,
            "reload": lambda _: self._reloads(broken=False),
            "reload fails": lambda amount: self._reloads(broken=amount >= 0.5),
        }
        self.faults = Faults(self.machine, service.device, service.store, occasions)
        self.clients = Clients(self.machine, service, self.checks, self.faults)
        self._asked, self._loads, self._loading = 0, 0, False
        self._processes: set[Process] = set()

    def run(self) -> Report:
        """Run it to its end. Raises ViolationError, with the seed, the command that replays it and the last events."""
        try:
            self._begin(self._open())
            while self.machine.step():
                self.checks.after_event()
            self.checks.at_the_end(self._asked, self.service.store, self.machine.time)
        except Exception as error:
            raise ViolationError(self._told(error)) from error
        kinds = Counter(fault.kind for fault in self.faults.begun)
        batches = self.service.device.batches
        return Report(Counter(self.checks.outcomes.values()), kinds, self.machine.events, batches, self.machine.time)

    def _told(self, error: Exception) -> str:
        what = str(error) if isinstance(error, ViolationError) else f"the service stumbles: {error!r}"
        command = f"python -m benchmarks.simulation --seed {self.seed} --requests {self._requests}"
        lines = [f"{self.machine.time:12.6f} s  {what}", f"again: {command}", f"{self._climate}", *self.checks.trace.lines()]
        return "\n".join(lines)

    def _begin(self, coroutine: Coroutine[Any, Any, None]) -> Process:
        process = self.machine.begin(coroutine, self._ended)
        if not process.ended:
            self._processes.add(process)  # a coroutine that nobody holds would be closed, as if its client had gone
        return process

    def _ended(self, process: Process) -> None:
        """A process ends with nothing, or because its client has gone."""
        self._processes.discard(process)
        if process.error is not None and not isinstance(process.error, CancelledError):
            raise process.error

    async def _open(self) -> None:
        if not await self._load():
            raise ViolationError("the first models are not served")
        length = self._requests * self._traffic.mean_gap
        for fault in drawn(self._random, self.machine.time, length):
            self.faults.schedule(fault)
        self._next_request()

    async def _load(self, *, broken: bool = False) -> bool:
        self._loads += 1
        loaded = await self.service.load(self._loads, broken=broken)
        self.checks.trace.add("loaded" if loaded else "not loaded", self._loads)
        return loaded

    def _next_request(self) -> None:
        if self._asked == self._requests:
            return
        self._request()
        if self._random.random() < WRITE_SHARE:
            self._write()
        self.machine.at(self.machine.time + self._traffic.gap(), self._next_request)

    def _request(self) -> None:
        self._asked += 1
        ask = self._traffic.ask()
        if self.faults.poisons and ask.keys and self._random.random() < POISON_SHARE:
            self.service.device.poison.add(ask.keys[0])
        process = self._begin(self.clients.exchange(ask))
        if ask.leaves is not None:
            self.machine.at(self.machine.time + ask.leaves, process.cancel)

    def _write(self) -> None:
        number = self._traffic.new_key() if self._random.random() < 0.9 else 0
        seconds = self._random.choice((None, None, 0.01, 2 * DAY)) if number else None
        self._begin(self.clients.store(f"d{self._random.randrange(STORED_IDS)}", number, seconds))

    def _burst(self, _amount: float) -> None:
        for _ in range(min(BURST, self._requests - self._asked)):
            self._request()

    def _reloads(self, *, broken: bool) -> None:
        self._begin(self._reload(broken=broken))

    async def _reload(self, *, broken: bool) -> None:
        """One at a time, as `service.ranking.reload` has it."""
        if self._loading:
            return
        self._loading, before = True, self.service.models
        if not await self._load(broken=broken) and self.service.models is not before:
            raise ViolationError("a reload fails, and other models are served")
        self._loading = False
