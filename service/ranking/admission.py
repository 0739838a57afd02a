"""Decides which requests are admitted. It counts requests in flight, and refuses a request without room before any work is done.

The model takes turns between requests, so a new request waits for its own work, and for as much work of each other request: a small
request is admitted beside a huge one that still has long to go. Only the event loop uses this module, so that counting and deciding
are one step.

The limits hold for the whole service. If it has several processes, each keeps its counts where the others can read them. Only the
owner writes them, so there is no lock, which a killed process could hold for ever. Processes that decide within the same
microseconds do not see each other's counts, and each may admit a request.
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
"""Maps the seconds that a new request needs the model to the seconds of other requests' work that come before it is done."""


class Load(Structure):
    """The resources that requests in flight hold; it may lie in memory that several processes read."""

    requests: int
    documents: int
    bytes: int
    _fields_ = (("requests", c_int64), ("documents", c_int64), ("bytes", c_int64))

    def __repr__(self) -> str:
        """The load as messages show it."""
        return f"{self.requests} requests, {self.documents} documents, {self.bytes} bytes"


class Loads(NamedTuple):
    """The loads of this process and of the other processes of its service."""

    own: Load
    others: Sequence[Load] = ()


class Admission:
    """Counts requests in flight.

    Args:
        limits: of the requests in flight.
        ahead: the work that the model does for others before it is done with a new request.
        metrics: counts refusals.
        pace: seconds per token of the fastest model: until its body is read, a new request may be for that model.
        loads: the counts of this process and of the others.
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
        self._unqueued: dict[Place, float] = {}  # seconds of requests whose work the model does not have yet
        self._preparing: dict[Place, Callable[[], float]] = {}  # seconds of large requests, at the current pace
        self._pace = pace
        self._tokens_a_byte = Pace()  # over all models

    def wait_seconds(self, own: float = math.inf, ahead: SecondsAhead | None = None) -> float:
        """Seconds that a new request with `own` seconds of work waits for others; by default until all work in flight is done."""
        return (ahead or self._ahead)(own) + sum(min(other, own) for other in self._unqueued.values())

    def enter(self, n_bytes: int, held: int | None = None) -> "Place":
        """Admit a request.

        Args:
            n_bytes: of its body, as declared; there must be room for them now.
            held: how many of them the request holds already; None: all of them.

        Returns the request's place, a context manager.

        Raises:
            RequestError: 429, with the seconds after which to try again.
        """
        self.check_wait(self._tokens_a_byte.estimate(n_bytes) * self._pace())
        if (requests := self._in_flight("requests")) >= self._limits.max_requests_in_flight:
            raise self._refusal("requests", f"{requests} requests are in flight, which is the limit")
        place = Place(self)
        self.check_bytes(n_bytes, 0)
        place.set_bytes(n_bytes if held is None else held)
        self.load.requests += 1
        return place

    @property
    def max_bytes(self) -> int:
        """Bytes that all requests in flight may hold."""
        return self._limits.max_bytes_in_flight

    def check_bytes(self, more: int, held: int) -> None:
        """Raise RequestError 429 when there is no room for `more` bytes of a request that holds `held` bytes."""
        in_flight = self._in_flight("bytes")
        if in_flight > held and in_flight + more > self.max_bytes:
            raise self._refusal("bytes", f"requests in flight hold {in_flight} bytes, and the limit is {self.max_bytes}")

    def check_wait(self, own: float, ahead: SecondsAhead | None = None) -> None:
        """Raise RequestError 429 when a request would have to wait too long for others.

        Args:
            own: seconds of work of the request.
            ahead: of the requested model, if known.
        """
        wait, limit = self.wait_seconds(own, ahead), self._limits.max_wait_ms / 1000
        if wait > limit:
            raise self._refusal("wait", f"it would wait {wait:.1f} s for others, and the limit is {limit:g} s", wait - limit)
        backlog, limit = self.wait_seconds(ahead=ahead), self._limits.max_backlog_ms / 1000
        if backlog > limit:
            raise self._refusal("wait", f"{backlog:.1f} s of work are waiting, and the limit is {limit:g} s", backlog - limit)

    def check_documents(self, n: int) -> None:
        """Raise RequestError 429 when there is no room for `n` more documents."""
        held, limit = self._in_flight("documents"), self._limits.max_documents_in_flight
        if held and held + n > limit:
            raise self._refusal("documents", f"requests in flight hold {held} documents, and the limit is {limit}")

    def queued(self, place: "Place") -> None:
        """The model has its work now, and counts it itself."""
        self._unqueued.pop(place, None)
        self._preparing.pop(place, None)

    def set_preparation(self, place: "Place", seconds: Callable[[], float], *, has_deadline: bool) -> None:
        """See Place."""
        wait, limit = sum(other() for other in self._preparing.values()), self._limits.max_wait_ms / 1000
        if wait > limit and not has_deadline:
            raise self._refusal("wait", f"preparing others takes {wait:.1f} s, and the limit is {limit:g} s", wait - limit)
        self._preparing[place] = seconds

    def set_documents(self, place: "Place", n_bytes: int, seconds: float, pace: float) -> None:
        """See Place. `n_bytes` are the request's bytes of text, 0 if most of it is stored; `seconds` the model's estimated time."""
        self._unqueued[place] = seconds
        if n_bytes and pace:
            self._tokens_a_byte.measured(n_bytes, seconds / pace)

    def _in_flight(self, field: str) -> int:
        """The number of requests, documents or bytes in flight, in all processes."""
        return sum(getattr(load, field) for load in self._loads)

    def _refusal(self, reason: str, problem: str, seconds: float | None = None) -> RequestError:
        """The error of a refusal. Without `seconds` to wait, half of the work in flight is to be done before the next try."""
        self._metrics.add("refused", why=reason)
        seconds = self.wait_seconds() / 2 if seconds is None else seconds
        return RequestError(429, f"busy: {problem}; try again later, or another replica", retry_after=max(1, math.ceil(seconds)))


class Place:
    """The share of the load that one request in flight holds, until the context is left."""

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

    def set_bytes(self, n_bytes: int) -> None:
        """The body has at least `n_bytes` bytes. Raises RequestError 429 when there is no room for them beside other requests."""
        more = n_bytes - self._held.bytes
        if more > 0:
            self._admission.check_bytes(more, self._held.bytes)
            self._admission.load.bytes += more
            self._held.bytes = n_bytes

    def add_bytes(self, more: int) -> None:
        """The request needs `more` bytes beside those that it holds.

        Raises RequestError: 429 when there is no room for them now, 422 when there never will be.
        """
        needed, limit = self._held.bytes + more, self._admission.max_bytes
        if needed > limit:
            raise RequestError(422, f"its documents take {needed} bytes once read, and the limit is {limit}: ask for fewer")
        self.set_bytes(needed)

    def set_documents(
        self,
        n_documents: int,
        seconds: float,
        *,
        has_deadline: bool,
        by_text: bool = True,
        pace: float = 1.0,
        ahead: SecondsAhead | None = None,
    ) -> None:
        """The request has documents, and an estimate of the model's time.

        Raises RequestError 429 when there is no room, or the request would wait too long for others. The second never refuses a
        request with a deadline, which is answered in time with whatever can be done.

        Args:
            n_documents: of the request.
            seconds: estimated time of the model.
            has_deadline: whether the request has a deadline.
            by_text: whether the request's bytes hold the documents' texts.
            pace: of the requested model, seconds per token.
            ahead: of the requested model.
        """
        self._admission.check_documents(n_documents)
        if not has_deadline:
            self._admission.check_wait(seconds, ahead)
        self._held.documents = n_documents
        self._admission.load.documents += n_documents
        self._admission.set_documents(self, self._held.bytes if by_text else 0, seconds, pace)

    def set_preparation(self, seconds: Callable[[], float], *, has_deadline: bool) -> None:
        """The request is large, and its preparation holds up other large requests for the estimated `seconds`, called when needed.

        Raises RequestError 429 when it would wait too long for others; not if it has a deadline, as in `set_documents`.
        """
        self._admission.set_preparation(self, seconds, has_deadline=has_deadline)

    def queued(self) -> None:
        """The model has its work now, and counts it itself."""
        self._admission.queued(self)

    def set_answer(self, n_bytes: int) -> None:
        """The work is done: from now on the request only holds the bytes of its answer, until they are written."""
        load, held = self._admission.load, self._held
        load.documents -= held.documents
        load.bytes += n_bytes - held.bytes
        held.documents, held.bytes = 0, n_bytes
        self._admission.queued(self)
