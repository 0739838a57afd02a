"""The invariants: they must hold after every event and at the end."""

from collections import deque
from dataclasses import dataclass, field

from benchmarks.simulation.machine import SimulatedMachine
from benchmarks.simulation.store import Key, SimulatedStore
from service.queue.job import Job
from service.queue.schedule import TURNS_TO_OLDEST
from service.ranking.model import PROMISED_SECONDS
from service.ranking.ranker import Ranker
from service.settings import Limits

TRACED = 30


class ViolationError(AssertionError):
    """An invariant does not hold."""


class Trace:
    """The last events, for the message of a violation."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine
        self._last: deque[tuple[float, str, tuple[object, ...]]] = deque(maxlen=TRACED)

    def add(self, what: str, *about: object) -> None:
        """Record an event of this moment."""
        self._last.append((self._machine.now(), what, about))

    def lines(self) -> list[str]:
        """The recorded events, one per line, the latest last."""
        return [f"{at:12.6f} s  {what} {' '.join(map(str, about))}" for at, what, about in self._last]


@dataclass(slots=True)
class Write:
    """A change of a stored document.

    Attributes:
        number: number of the written document; 0 for a deletion.
        acknowledged: time of the acknowledgement; None: it failed, or is not finished.
        expires: whether the document expires.
    """

    number: int
    acknowledged: float | None = None
    expires: bool = False


@dataclass(slots=True)
class Ledger:
    """The writes by id, in the order of submission. The store has one writer, so that it keeps the order."""

    writes: dict[Key, list[Write]] = field(default_factory=dict)

    def begin(self, key: Key, number: int, *, expires: bool = False) -> Write:
        """Record a submitted write."""
        write = Write(number, expires=expires)
        self.writes.setdefault(key, [Write(0, 0.0)]).append(write)
        return write

    def may_be(self, key: Key, number: int, since: float) -> bool:
        """Whether a read that began then may return this document: it is the last acknowledged then, or of a later write."""
        writes = self.writes.get(key, [Write(0, 0.0)])
        last = max(n for n, one in enumerate(writes) if one.acknowledged is not None and one.acknowledged <= since)
        return any(one.number == number or (number == 0 and one.expires) for one in writes[last:])


class Checks:
    """Checks invariants. Raises ViolationError if one does not hold.

    Args:
        machine: provides the clock.
        limits: limits on requests in flight.
    """

    def __init__(self, machine: SimulatedMachine, limits: Limits) -> None:
        self.trace, self.ledger = Trace(machine), Ledger()
        self.inside: dict[int, int] = {}  # received bytes of each unanswered request
        self.begun: set[int] = set()  # requests in flight: their bodies have arrived, and their answers are not written
        self.answering: dict[int, int] = {}  # bytes of the answers that clients are reading
        self.outcomes: dict[int, str] = {}
        self._received = self._answers = 0
        self._limits = limits
        self._turns: dict[Job, tuple[int, int]] = {}  # turn of a job's arrival, and turn by which all of it must be taken
        self.problem: Exception | None = None  # an error of a client, or of a thread that would swallow it

    def watch(self, ranker: Ranker) -> None:
        """Check that nothing is in flight when a process begins to serve."""
        self._ranker, self._load = ranker, ranker.admission.load
        self._schedule = schedule = ranker.worker.schedule
        self._turns.clear()
        take_in, decide = schedule.accept, schedule.begin_round

        def accept(job: Job) -> None:
            self.accepts(job)
            take_in(job)

        def begin_round(now: float) -> None:
            decide(now)
            self.round_begins()

        schedule.accept, schedule.begin_round = accept, begin_round  # type: ignore[method-assign]

    def enters(self, number: int) -> None:
        """Count a request whose body may come."""
        self.inside[number] = 0

    def begins(self, number: int) -> None:
        """Count a request whose body is there."""
        self.begun.add(number)

    def receives(self, number: int, n_bytes: int) -> None:
        """Count the bytes of a request's body that are received and admitted so far."""
        self._received += n_bytes - self.inside[number]
        self.inside[number] = n_bytes

    def answers(self, number: int, n_bytes: int) -> None:
        """Count a request whose body is freed and whose answer is being sent."""
        self._received -= self.inside.pop(number)
        self.answering[number] = n_bytes
        self._answers += n_bytes

    def leaves(self, number: int, outcome: str) -> None:
        """Count a finished request."""
        self._received -= self.inside.pop(number, 0)
        self._answers -= self.answering.pop(number, 0)
        self.begun.discard(number)
        if number in self.outcomes:
            raise ViolationError(f"request {number} is answered twice: {self.outcomes[number]}, then {outcome}")
        self.outcomes[number] = outcome

    def accepts(self, job: Job) -> None:
        """Record a new job. Every fourth turn serves the oldest job, so a job needs at most four turns per earlier sequence."""
        before = sum(one.n_waiting for one in self._schedule.tasks if not one.finished)
        self._turns[job] = self._schedule.turns, TURNS_TO_OLDEST * (before + job.n_waiting + 1)

    def round_begins(self) -> None:
        """Check a new round, which has taken its sequences."""
        turns, ended = self._schedule.turns, []
        for job, (came, most) in self._turns.items():
            if job.finished or not job.n_waiting:
                ended.append(job)
            elif turns - came > most:
                waits = f"a job of {len(job.lengths)} sequences waits for {turns - came} turns"
                self.problem = ViolationError(f"{waits}; {most} is the bound")
        for job in ended:
            del self._turns[job]

    def after_event(self) -> None:
        """Check that the counts of what is in flight are right and within their bounds."""
        load, held = self._load, self._received + self._answers
        if self.problem is not None:
            raise self.problem
        n = len(self.begun)
        if load.requests != n or n > self._limits.max_requests_in_flight:
            raise ViolationError(
                f"{n} requests are in flight, {load.requests} are counted, of {self._limits.max_requests_in_flight}"
            )
        if load.bytes < held:
            raise ViolationError(f"{held} bytes are in flight, and {load.bytes} are counted")
        if not self.inside and not self.answering and (load.documents or load.bytes):
            raise ViolationError(f"nothing is in flight, and {load} is counted")
        most = self._limits.max_bytes_in_flight
        if self._received > most and sum(map(bool, self.inside.values())) > 1:
            raise ViolationError(f"{self._received} bytes of several requests are in flight, of {most}")

    def in_time(self, number: int, late: float) -> None:
        """Check how many seconds after its deadline a request was answered. It must not wait for a batch, however long."""
        if late > PROMISED_SECONDS:
            raise ViolationError(f"request {number} is answered {late:.3f} s after its deadline; {PROMISED_SECONDS} s is the bound")

    def looked_up(self, identity: Key, number: int, since: float) -> None:
        """Check the document that a read of that time returned."""
        if not self.ledger.may_be(identity, number, since):
            raise ViolationError(
                f"document {identity} is {number or 'not there'}, and a later one was acknowledged before {since:.6f} s"
            )

    def at_rest(self) -> None:
        """Check that nothing is left in flight."""
        if any(not job.finished for job in self._ranker.worker.jobs()):
            raise ViolationError("a job is left over")
        if (wait := self._ranker.admission.wait_seconds()) > 0:
            raise ViolationError(f"nothing is in flight, and a newcomer would wait {wait:.3f} s")

    def at_the_end(self, sent: int, store: SimulatedStore, now: float) -> None:
        """Check that every request is answered, nothing is held, and every acknowledged document is stored."""
        if len(self.outcomes) != sent:
            missing = sorted(set(range(1, sent + 1)) - set(self.outcomes))
            raise ViolationError(f"{len(missing)} requests are never answered, request {missing[0]} among them")
        self.at_rest()
        for key in self.ledger.writes:
            self.looked_up(key, store.number(key), now)
        if store.wrong:
            raise ViolationError(store.wrong[0])
