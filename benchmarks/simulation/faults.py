"""Faults: their kinds and times, and their effects on the device, the store and the clock."""

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from benchmarks.simulation.device import Device
from benchmarks.simulation.machine import SimulatedMachine
from benchmarks.simulation.service import Files
from benchmarks.simulation.store import SimulatedStore
from benchmarks.simulation.upstream import FAULTS as UPSTREAM
from benchmarks.simulation.upstream import SimulatedUpstream

DAY = 86_400
SLOW = "device slow"  # a very slow device counts as one that hangs
DEVICE = (SLOW, "batches fail", "no memory", "poison")
ENDS = (
    "thread dies",
    "device hangs",
    "terminated",
    "reload fails",
)  # they end a process, after which requests may fail for a while
STORE = ("store away", "store slow", "store mute", "store full")
AT_ONCE = ("clock jumps", "reloads", "burst")
ALL = DEVICE + ENDS + STORE + AT_ONCE + UPSTREAM
TOGETHER = (
    ALL,
    ALL,
    DEVICE + ENDS,
    ENDS + AT_ONCE,
    STORE + AT_ONCE,
    UPSTREAM,
)  # kinds of an episode: related kinds meet more often
LARGE = 1 << 30


@dataclass(slots=True)
class Fault:
    """A fault that begins at one time and ends at another.

    Attributes:
        amount: severity from 0 to 1.
    """

    kind: str
    begins: float
    ends: float
    amount: float


def drawn(random: Random, now: float, seconds: float) -> list[Fault]:
    """Draw the faults of an episode of about this length from now on."""
    made, kinds = [], random.choice(TOGETHER)
    for _ in range(random.choice((0, 2, 5, 9))):
        begins = now + random.random() * seconds
        ends = begins + random.random() * seconds / 5
        made.append(Fault(random.choice(kinds), begins, ends, random.random()))
    return made


class Faults:
    """The faults of an episode. Begins and ends each at its time.

    Args:
        breaks: the parts that break: machine (its clock jumps), device, store, upstream and files.
        occasions: functions that carry out a fault of one moment, by its kind; they get its severity.

    Attributes:
        begun: faults so far.
        device: the device among the parts that break.
    """

    def __init__(
        self,
        breaks: tuple[SimulatedMachine, Device, SimulatedStore, SimulatedUpstream, Files],
        occasions: dict[str, Callable[[float], None]],
    ) -> None:
        self.begun: list[Fault] = []
        self._machine, self.device, store, self._upstream, self._files = breaks
        self._occasions = occasions
        self._scheduled: list[Fault] = []
        store.fault = self.amount

    @property
    def poisons(self) -> bool:
        """Whether some documents now fail every batch they are in."""
        return self.amount("poison") > 0

    def between(self, kinds: tuple[str, ...], since: float) -> bool:
        """Whether a fault of one of these kinds was active at any time since then."""
        return any(fault.kind in kinds and fault.ends >= since for fault in self.begun)

    def amount(self, kind: str) -> float:
        """Severity of the active faults of a kind; 0 for none. Work done at once sees them begin and end in its own time."""
        now = self._machine.now()
        akin = (fault for fault in self._scheduled if fault.kind == kind)
        return max((fault.amount for fault in akin if fault.begins <= now < fault.ends), default=0.0)

    def schedule(self, fault: Fault) -> None:
        """Schedule the fault's begin and end."""
        self._scheduled.append(fault)
        self._machine.loop.at(fault.begins, self._begins, fault)

    def _begins(self, fault: Fault) -> None:
        self.begun.append(fault)
        if fault.kind == "clock jumps":
            self._machine.wall_is += (fault.amount - 0.5) * 4 * DAY
        elif fault.kind in self._occasions:
            self._occasions[fault.kind](fault.amount)
        self._apply()
        self._machine.loop.at(fault.ends, self._apply)

    def _apply(self) -> None:
        amount, device = self.amount, self.device
        device.slower = 1 + 50 * amount("device slow")
        device.failing = amount("batches fail")
        device.memory = 64 + int(2000 * bad) if (bad := amount("no memory")) else LARGE
        device.warm_ups_fail = 0 < amount("reload fails") < 0.5
        self._files.broken = amount("reload fails") >= 0.5
        self._upstream.faults = {kind: bad for kind in UPSTREAM if (bad := amount(kind))}
