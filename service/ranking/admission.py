"""Which requests are let in: what is in flight is counted, and one for which there is no room is refused before any work is done.

The model takes turns between requests, so a newcomer waits for what it has to do itself, and for as much of each other request: a
small one is let in beside a huge one that has still long to go. Used by the event loop alone, so that counting and deciding are
one step.

The limits are of the service. Where it has several processes, each counts what it has let in where the others can read it. Nobody
else writes there, so that there is no lock, which a process that is killed could hold for ever. Those that decide within the same
microseconds do not see each other, and each of them may let one in.
"""

import math
from collections.abc import Callable, Sequence
from ctypes import Structure, c_int64
from types import TracebackType
from typing import NamedTuple, Self

from service.errors import RequestError
from service.pace import Pace
from service.settings import Limits
from service.telemetry.metrics import Metrics

SecondsAhead = Callable[[float], float]
"""From the seconds that a newcomer needs the model to the seconds until it is done with its share of what it has."""


class Load(Structure):
    """What requests in flight hold; it may lie in memory that several processes read."""

    requests: int
    documents: int
    bytes: int
    _fields_ = (("requests", c_int64), ("documents", c_int64), ("bytes", c_int64))

    def __repr__(self) -> str:
        """For messages."""
        return f"{self.requests} requests, {self.documents} documents, {self.bytes} bytes"


class Loads(NamedTuple):
    """What requests hold that are in flight in this process, and in the others of its service."""

    own: Load
    others: Sequence[Load] = ()


class Admission:
    """Counts requests in flight.

    Args:
        limits: of what may be in flight.
        ahead: what the model has to do before it is done with a newcomer.
        metrics: counts refusals.
        pace: seconds that the fastest model takes for a token: before its body is read, a newcomer may be asking that one.
        loads: what is counted, here and by the other processes of the service.
    """

    def __init__(
        self,
        limits: Limits,
        ahead: SecondsAhead,
        metrics: Metrics,
        pace: Callable[[], float] = lambda: 1.0,
        loads: Loads | None = None,
    ) -> None:
        self.load, others = loads or Loads(Load())
        self._loads = (self.load, *others)
        self._limits = limits
        self._ahead = ahead
        self._metrics = metrics
        self._unqueued: dict[Place, float] = {}  # seconds of those that the model does not have yet
        self._preparing: dict[Place, Callable[[], float]] = {}  # seconds of large ones, at the pace of the moment
        self._pace = pace
        self._tokens_a_byte = Pace()  # of all models together

    def wait_seconds(self, own: float = math.inf, ahead: SecondsAhead | None = None) -> float:
        """How long a newcomer with so many seconds of its own waits for others; by default until all that is in flight is done."""
        return (ahead or self._ahead)(own) + sum(min(theirs, own) for theirs in self._unqueued.values())

    def enter(self, n_bytes: int, held: int | None = None) -> "Place":
        """Let a request in.

        Args:
            n_bytes: of its body, as declared; there must be room for them now.
            held: how many of them it holds already; all of them when left out.

        Returns its place, a context manager.

        Raises:
            RequestError: 429, with the seconds after which to try again.
        """
        self.check_wait(self._tokens_a_byte.estimate(n_bytes) * self._pace())
        if (requests := self._in_flight("requests")) >= self._limits.max_requests_in_flight:
            raise self._refusal("requests", f"{requests} requests are in flight, which is the limit")
        place = Place(self)
        self.check_bytes(n_bytes, 0)
        place.holds(n_bytes if held is None else held)
        self.load.requests += 1
        return place

    @property
    def most_bytes(self) -> int:
        """Bytes that all in flight may hold."""
        return self._limits.max_bytes_in_flight

    def check_bytes(self, more: int, held: int) -> None:
        """Raise RequestError 429 when there is no room for so many bytes more of a request that holds so many."""
        in_flight = self._in_flight("bytes")
        if in_flight > held and in_flight + more > self.most_bytes:
            raise self._refusal("bytes", f"requests in flight hold {in_flight} bytes, and the limit is {self.most_bytes}")

    def check_wait(self, own: float, ahead: SecondsAhead | None = None) -> None:
        """Raise RequestError 429 when so many seconds of work would have to wait too long for others.

        Args:
            own: the seconds.
            ahead: of the model that is asked for, where it is known.
        """
        wait, most = self.wait_seconds(own, ahead), self._limits.max_wait_ms / 1000
        if wait > most:
            raise self._refusal("wait", f"it would wait {wait:.1f} s for others, and the limit is {most:g} s", wait - most)
        backlog, most = self.wait_seconds(ahead=ahead), self._limits.max_backlog_ms / 1000
        if backlog > most:
            raise self._refusal("wait", f"{backlog:.1f} s of work are waiting, and the limit is {most:g} s", backlog - most)

    def check_documents(self, n: int) -> None:
        """Raise RequestError 429 when there is no room for so many documents more."""
        held, most = self._in_flight("documents"), self._limits.max_documents_in_flight
        if held and held + n > most:
            raise self._refusal("documents", f"requests in flight hold {held} documents, and the limit is {most}")

    def queued(self, place: "Place") -> None:
        """The model has its work now, and counts it itself."""
        self._unqueued.pop(place, None)
        self._preparing.pop(place, None)

    def prepares(self, place: "Place", seconds: Callable[[], float], *, hurried: bool) -> None:
        """See Place."""
        wait, most = sum(theirs() for theirs in self._preparing.values()), self._limits.max_wait_ms / 1000
        if wait > most and not hurried:
            raise self._refusal("wait", f"preparing others takes {wait:.1f} s, and the limit is {most:g} s", wait - most)
        self._preparing[place] = seconds

    def reads(self, place: "Place", n_bytes: int, seconds: float, pace: float) -> None:
        """It has so many bytes of text (0 where most of it is stored), and is going to take the model about so many seconds."""
        self._unqueued[place] = seconds
        if n_bytes and pace:
            self._tokens_a_byte.measured(n_bytes, seconds / pace)

    def _in_flight(self, what: str) -> int:
        """How many requests, documents or bytes are in flight, in all processes."""
        return sum(getattr(load, what) for load in self._loads)

    def _refusal(self, why: str, problem: str, seconds: float | None = None) -> RequestError:
        """Where counts are too large, half of what is in flight is to be done first."""
        self._metrics.add("refused", why=why)
        seconds = self.wait_seconds() / 2 if seconds is None else seconds
        return RequestError(429, f"busy: {problem}; try again later, or another replica", retry_after=max(1, math.ceil(seconds)))


class Place:
    """What one request in flight holds of the load, until it is left."""

    def __init__(self, admission: Admission) -> None:
        self._admission = admission
        self._held = Load(requests=1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        load, held = self._admission.load, self._held
        load.requests -= held.requests
        load.documents -= held.documents
        load.bytes -= held.bytes
        self._held = Load()
        self._admission.queued(self)

    def holds(self, n_bytes: int) -> None:
        """The body has so many bytes, at least. Raises RequestError 429 when there is no room for them beside what others hold."""
        more = n_bytes - self._held.bytes
        if more > 0:
            self._admission.check_bytes(more, self._held.bytes)
            self._admission.load.bytes += more
            self._held.bytes = n_bytes

    def takes(self, more: int) -> None:
        """It is going to take so many bytes beside what it holds.

        Raises RequestError: 429 when there is no room for them now, 422 when there never will be.
        """
        needed, most = self._held.bytes + more, self._admission.most_bytes
        if needed > most:
            raise RequestError(422, f"its documents take {needed} bytes once read, and the limit is {most}: ask for fewer")
        self.holds(needed)

    def reads(
        self,
        n_documents: int,
        seconds: float,
        *,
        hurried: bool,
        by_text: bool = True,
        pace: float = 1.0,
        ahead: SecondsAhead | None = None,
    ) -> None:
        """It asks for so many documents, which are going to take the model about so many seconds.

        Raises RequestError 429 when there is no room, or others keep it waiting for too long; the latter not where it is hurried:
        it has a deadline, and is answered in time with what can be done.

        Args:
            n_documents: that it asks for.
            seconds: of the model.
            hurried: whether it has a deadline.
            by_text: whether they are for the bytes that it has sent.
            pace: of the model that it asks for, seconds a token.
            ahead: of that model.
        """
        self._admission.check_documents(n_documents)
        if not hurried:
            self._admission.check_wait(seconds, ahead)
        self._held.documents = n_documents
        self._admission.load.documents += n_documents
        self._admission.reads(self, self._held.bytes if by_text else 0, seconds, pace)

    def prepares(self, seconds: Callable[[], float], *, hurried: bool) -> None:
        """It is large, and its preparation keeps other large ones waiting, for so many seconds as far as is known by then.

        Raises RequestError 429 when others keep it waiting for too long; not where it is hurried, as for `reads`.
        """
        self._admission.prepares(self, seconds, hurried=hurried)

    def queued(self) -> None:
        """The model has its work now, and counts it itself."""
        self._admission.queued(self)

    def answers(self, n_bytes: int) -> None:
        """Its work is done: all that it holds from now on are the bytes of its answer, until they are written."""
        load, held = self._admission.load, self._held
        load.documents -= held.documents
        load.bytes += n_bytes - held.bytes
        held.documents, held.bytes = 0, n_bytes
        self._admission.queued(self)
