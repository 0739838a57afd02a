"""Decides which requests are admitted. It counts requests in flight, and refuses a request without room before any work is done.

The model takes turns between requests, so a new request waits for its own work, and for as much work of each other request: a small
request is admitted beside a huge one that still has long to go. Only the event loop uses this module, so that counting and deciding
are one step.
"""

import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from service.errors import RequestError
from service.pace import Pace, SecondsAhead, ahead_in_turns
from service.settings import Limits
from service.telemetry.metrics import Metrics

SMALL_SHARE = 0.01  # of the longest backlog: a request of no more work has its turns beside others, however much waits
PREPARING, ANSWERING = "preparing", "completing the answers of"
Seconds = Callable[[], float]
"""Seconds of a request's work, at the current pace."""


@dataclass(slots=True)
class Load:
    """The resources that requests in flight hold."""

    requests: int = 0
    documents: int = 0
    bytes: int = 0


class Admission:
    """Counts requests in flight.

    Args:
        limits: of the requests in flight.
        backlog: gives the work that waits for the model at this moment.
        metrics: counts refusals.
        pace: seconds per token of the fastest model: until its body is read, a new request may be for that model.
        shares: one caller may have the limits divided by this number.

    Attributes:
        load: of all requests.
        working: the requests with documents, and those that wait for preparation or for their answer.
    """

    def __init__(
        self,
        limits: Limits,
        backlog: Callable[[], SecondsAhead],
        metrics: Metrics,
        pace: Callable[[], float] = lambda: 1.0,
        shares: int = 1,
    ) -> None:
        self.load = Load()
        self.working: dict[Place, None] = {}  # a set that keeps its order
        self._callers: dict[str, Load] = defaultdict(Load)  # as many as keys
        self._limits, self._shares = limits, shares
        self._backlog = backlog
        self._metrics = metrics
        self._pace = pace
        self._tokens_a_byte = Pace()  # over all models

    def wait_seconds(self, own: float = math.inf, ahead: SecondsAhead | None = None) -> float:
        """Seconds that a new request with `own` seconds of work waits for others; by default until all work in flight is done."""
        return (ahead or self._backlog())(own) + ahead_in_turns([place.unqueued for place in self.working])(own)

    def enter(self, n_bytes: int, caller: str = "") -> "Place":
        """Let a request in whose body is going to arrive, if there is room for it now.

        It is not counted yet, since a body that does not come must take no room from others: `Place.set_bytes` counts the bytes
        that have arrived, and `Place.begin` the request.

        Args:
            n_bytes: of its body, as declared.
            caller: its key; "" without keys.

        Returns the request's place, a context manager.

        Raises:
            RequestError: 429, with the seconds after which to try again.
        """
        self.check_wait(self._tokens_a_byte.estimate(n_bytes) * self._pace(), self._backlog())
        self.check_requests(caller)
        self.check_bytes(n_bytes, 0, caller)
        return Place(self, caller)

    def loads(self, caller: str) -> tuple[Load, Load]:
        """The load of everybody, and of this caller."""
        return self.load, self._callers[caller]

    def measured(self, n_bytes: int, n_tokens: float) -> None:
        """Learn the number of tokens that the texts of a request of `n_bytes` have."""
        self._tokens_a_byte.measured(n_bytes, n_tokens)

    @property
    def max_bytes(self) -> int:
        """Bytes that all requests in flight may hold."""
        return self._limits.max_bytes_in_flight

    def check_requests(self, caller: str) -> None:
        """Raise RequestError 429 when there is no room for one more request."""
        for load, limit in self._with_limits(caller, self._limits.max_requests_in_flight):
            if load.requests >= limit:
                raise self._refusal("requests", f"{load.requests} requests are in flight, which is the limit")

    def check_bytes(self, more: int, held: int, caller: str) -> None:
        """Raise RequestError 429 when there is no room for `more` bytes of a request that holds `held` bytes."""
        for load, limit in self._with_limits(caller, self.max_bytes):
            if load.bytes > held and load.bytes + more > limit:
                raise self._refusal("bytes", f"requests in flight hold {load.bytes} bytes, and the limit is {limit}")

    def check_documents(self, n: int) -> None:
        """Raise RequestError 429 when there is no room for `n` more documents."""
        held, limit = self.load.documents, self._limits.max_documents_in_flight
        if held and held + n > limit:
            raise self._refusal("documents", f"requests in flight hold {held} documents, and the limit is {limit}")

    def check_wait(self, own: float, ahead: SecondsAhead | None = None) -> None:
        """Raise RequestError 429 when a request would have to wait too long for others.

        Args:
            own: seconds of work of the request.
            ahead: the work that waits for the requested model; None: see `Admission`.
        """
        wait, limit = self.wait_seconds(own, ahead), self._limits.max_wait_ms / 1000
        if wait > limit:
            raise self._refusal("wait", f"it would wait {wait:.1f} s for others, and the limit is {limit:g} s", wait - limit)
        backlog, limit = self.wait_seconds(ahead=ahead), self._limits.max_backlog_ms / 1000
        if backlog > limit and own > SMALL_SHARE * limit:
            raise self._refusal("wait", f"{backlog:.1f} s of work are waiting, and the limit is {limit:g} s", backlog - limit)

    def check_turn(self, work: str, own: float) -> None:
        """Raise RequestError 429 when a request would wait too long for others at work in which they take turns.

        Args:
            work: PREPARING or ANSWERING.
            own: seconds of this work of the request.
        """
        limit = self._limits.max_wait_ms / 1000
        wait = ahead_in_turns([place.turns[work]() for place in self.working if work in place.turns])(own)
        if wait > limit:
            raise self._refusal("wait", f"{work} others takes {wait:.1f} s, and the limit is {limit:g} s", wait - limit)

    def _with_limits(self, caller: str, limit: int) -> Iterator[tuple[Load, int]]:
        """The load of everybody and of this caller, each with the limit of its requests or bytes."""
        yield self.load, limit
        if caller:  # without keys there is no other one
            yield self._callers[caller], max(limit // self._shares, 1)

    def _refusal(self, reason: str, problem: str, seconds: float | None = None) -> RequestError:
        """The error of a refusal. Without `seconds` to wait, half of the work in flight is to be done before the next try."""
        self._metrics.add("refused", why=reason)
        seconds = self.wait_seconds() / 2 if seconds is None else seconds
        return RequestError(429, f"busy: {problem}; try again later, or another replica", retry_after=max(1, math.ceil(seconds)))


class Place:
    """The share of the load that one request holds, until the context is left.

    Attributes:
        unqueued: seconds of its work that the model does not have yet.
        turns: its seconds of PREPARING and ANSWERING, as long as it waits for them.
    """

    def __init__(self, admission: Admission, caller: str = "") -> None:
        self.unqueued = 0.0
        self.turns: dict[str, Seconds] = {}
        self._admission, self._caller = admission, caller
        self._held, self._seconds = Load(), 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        held = self._held
        self._add(-held.requests, -held.documents, -held.bytes)
        self._admission.working.pop(self, None)

    def begin(self) -> None:
        """The request is in flight from now on: its body is there, or a first part. Raises RequestError 429 if too many are."""
        if not self._held.requests:
            self._admission.check_requests(self._caller)
            self._add(requests=1)

    def set_bytes(self, n_bytes: int) -> None:
        """The request holds `n_bytes` bytes now. Raises RequestError 429 when there is no room for more beside other requests."""
        more = n_bytes - self._held.bytes
        if more > 0:
            self._admission.check_bytes(more, self._held.bytes, self._caller)
        self._add(n_bytes=more)

    def grow(self, more: int) -> None:
        """The request needs `more` bytes beside those that it holds. Raises RequestError 429 when there is no room for them now."""
        self.set_bytes(self._held.bytes + more)

    def add_bytes(self, more: int) -> None:
        """See `grow`. Raises RequestError 422 when there never will be room for them."""
        needed, limit = self._held.bytes + more, self._admission.max_bytes
        if needed > limit:
            raise RequestError(422, f"its documents take {needed} bytes once read, and the limit is {limit}: ask for fewer")
        self.grow(more)

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
        self._add(documents=n_documents)
        self._seconds = self.unqueued = seconds
        self._admission.working[self] = None
        if by_text and self._held.bytes and pace:
            self._admission.measured(self._held.bytes, seconds / pace)

    def set_turn(self, work: str, seconds: Seconds, *, has_deadline: bool) -> None:
        """The request waits for work in which requests take turns, and holds up others for the estimated `seconds`.

        Raises RequestError 429 when it would wait too long for others; not if it has a deadline, as in `set_documents`.

        Args:
            work: PREPARING, if the request is large, or ANSWERING, if it wants spans or contexts.
            seconds: called when needed.
            has_deadline: whether the request has a deadline.
        """
        if not has_deadline:
            self._admission.check_turn(work, seconds())
        self.turns[work] = seconds
        self._admission.working[self] = None

    def queued(self, share: float = 1.0) -> None:
        """The model has this share of the request's work now, and counts it itself."""
        self.unqueued = max(self.unqueued - share * self._seconds, 0.0)
        self.turns.pop(PREPARING, None)

    def set_answer(self, n_bytes: int) -> None:
        """The work is done: from now on the request only holds the bytes of its answer, until they are written."""
        self._add(documents=-self._held.documents, n_bytes=n_bytes - self._held.bytes)
        self._admission.working.pop(self, None)

    def _add(self, requests: int = 0, documents: int = 0, n_bytes: int = 0) -> None:
        for load in (self._held, *self._admission.loads(self._caller)):
            load.requests += requests
            load.documents += documents
            load.bytes += n_bytes
