"""What must hold after every event, and at the end when nothing is left to do."""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from benchmarks.simulation.machine import SimulatedMachine
from benchmarks.simulation.store import Key, Shelf
from service.engine.jobs import Job
from service.engine.schedule import TURNS_TO_OLDEST, Run
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
        """Remember an event that happens now."""
        self._last.append((self._machine.now(), what, about))

    def lines(self) -> list[str]:
        """The remembered events, one a line, the latest last."""
        return [f"{at:12.6f} s  {what} {' '.join(map(str, about))}" for at, what, about in self._last]


@dataclass(slots=True)
class Write:
    """A change of a stored document.

    Attributes:
        number: of the document that is written; 0 where it is deleted.
        acknowledged: when; none: it failed, or is under way.
        expires: whether it is gone after some time.
    """

    number: int
    acknowledged: float | None = None
    expires: bool = False


@dataclass(slots=True)
class Ledger:
    """What was written by id, in the order in which it was handed in: the store's one writer keeps it."""

    writes: dict[Key, list[Write]] = field(default_factory=dict)

    def begin(self, key: Key, number: int, *, expires: bool = False) -> Write:
        """Record a write that is handed in."""
        write = Write(number, expires=expires)
        self.writes.setdefault(key, [Write(0, 0.0)]).append(write)
        return write

    def may_be(self, key: Key, number: int, since: float) -> bool:
        """Whether who asks, since then, may be given this document: it is the last acknowledged by then, or of a later write."""
        writes = self.writes.get(key, [Write(0, 0.0)])
        last = max(n for n, one in enumerate(writes) if one.acknowledged is not None and one.acknowledged <= since)
        return any(one.number == number or (number == 0 and one.expires) for one in writes[last:])


class Checks:
    """Raises ViolationError where something does not hold.

    Args:
        machine: has the clock.
        limits: of what may be in flight.
    """

    def __init__(self, machine: SimulatedMachine, limits: Limits) -> None:
        self.trace, self.ledger = Trace(machine), Ledger()
        self.inside: dict[int, int] = {}  # bytes that have come of each request that is in flight and not answered
        self.answering: dict[int, int] = {}  # bytes of the answers that are being read
        self.outcomes: dict[int, str] = {}
        self._received = self._answers = 0
        self._limits = limits
        self._turns: dict[Job, tuple[int, int]] = {}  # at which a job came, and by which all of it must have been taken
        self.problem: Exception | None = None  # of a client, or of a thread that would swallow it

    def watch(self, ranker: Ranker) -> None:
        """Check a process that begins to serve: nothing may be in flight."""
        self._ranker, self._rounds, self._load = ranker, ranker.engine.rounds, ranker.admission.load
        self._turns.clear()
        hand_in, take = self._rounds.submit, self._rounds.round

        def submit(job: Job) -> None:
            self.submits(job)
            hand_in(job)

        def round_() -> Iterator[Run[Job]]:
            yield from take()
            self.round_ends()

        self._rounds.submit, self._rounds.round = submit, round_  # type: ignore[method-assign]

    def enters(self, number: int) -> None:
        """Count a request that is admitted."""
        self.inside[number] = 0

    def receives(self, number: int, n_bytes: int) -> None:
        """Count the bytes of its body that have been received and admitted so far."""
        self._received += n_bytes - self.inside[number]
        self.inside[number] = n_bytes

    def answers(self, number: int, n_bytes: int) -> None:
        """Count a request whose body is no longer held and whose answer is being sent."""
        self._received -= self.inside.pop(number)
        self.answering[number] = n_bytes
        self._answers += n_bytes

    def leaves(self, number: int, outcome: str) -> None:
        """Count a request that is over."""
        self._received -= self.inside.pop(number, 0)
        self._answers -= self.answering.pop(number, 0)
        if number in self.outcomes:
            raise ViolationError(f"request {number} is answered twice: {self.outcomes[number]}, then {outcome}")
        self.outcomes[number] = outcome

    def submits(self, job: Job) -> None:
        """A job comes; every fourth turn is of the oldest, so that it has had its turns after four for each sequence before it."""
        before = sum(one.n_waiting for one in self._rounds.jobs if not one.finished)
        self._turns[job] = self._rounds.turns, TURNS_TO_OLDEST * (before + job.n_waiting + 1)

    def round_ends(self) -> None:
        """A round has taken its sequences, and is over."""
        turns, ended = self._rounds.turns, []
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
        n = len(self.inside) + len(self.answering)
        if load.requests != n or n > self._limits.max_requests_in_flight:
            raise ViolationError(
                f"{n} requests are in flight, {load.requests} are counted, of {self._limits.max_requests_in_flight}"
            )
        if load.bytes < held:
            raise ViolationError(f"{held} bytes are in flight, and {load.bytes} are counted")
        if not n and (load.documents or load.bytes):
            raise ViolationError(f"nothing is in flight, and {load} is counted")
        most = self._limits.max_bytes_in_flight
        if self._received > most and sum(map(bool, self.inside.values())) > 1:
            raise ViolationError(f"{self._received} bytes of several requests are in flight, of {most}")

    def in_time(self, number: int, late: float) -> None:
        """A hurried request was answered so many seconds after its deadline: no batch, however long, is waited for."""
        if late > PROMISED_SECONDS:
            raise ViolationError(f"request {number} is answered {late:.3f} s after its deadline; {PROMISED_SECONDS} s is the bound")

    def looked_up(self, identity: Key, number: int, since: float) -> None:
        """Check the document that a reader, who asked at that time, was given."""
        if not self.ledger.may_be(identity, number, since):
            raise ViolationError(
                f"document {identity} is {number or 'not there'}, and a later one was acknowledged before {since:.6f} s"
            )

    def at_rest(self) -> None:
        """Check that nothing is left in flight."""
        if any(not job.finished for job in self._rounds.jobs):
            raise ViolationError("a job is left over")
        if (wait := self._ranker.admission.wait_seconds()) > 0:
            raise ViolationError(f"nothing is in flight, and a newcomer would wait {wait:.3f} s")

    def at_the_end(self, sent: int, store: Shelf, now: float) -> None:
        """Check that every request is answered, nothing is held, and every acknowledged document is stored."""
        if len(self.outcomes) != sent:
            missing = sorted(set(range(1, sent + 1)) - set(self.outcomes))
            raise ViolationError(f"{len(missing)} requests are never answered, request {missing[0]} among them")
        self.at_rest()
        for key in self.ledger.writes:
            self.looked_up(key, store.number(key), now)
        if store.wrong:
            raise ViolationError(store.wrong[0])
