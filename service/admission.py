"""Which requests are let in: what is in flight is counted, and one for which there is no room is refused before any work is done.

Used by the event loop alone, so that counting and deciding are one step.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from service.errors import RequestError
from service.metrics import Metrics
from service.settings import Limits


@dataclass(slots=True)
class Load:
    """What requests in flight hold.

    Attributes:
        tokens: of those that the model does not have yet, as reckoned before they are prepared.
    """

    requests: int = 0
    documents: int = 0
    bytes: int = 0
    tokens: float = 0.0


class Admission:
    """Counts requests in flight.

    Args:
        limits: of what may be in flight.
        waiting: seconds until the model has done all that is in flight, given the tokens that it does not have yet.
        metrics: counts refusals.
    """

    def __init__(self, limits: Limits, waiting: Callable[[float], float], metrics: Metrics) -> None:
        self.load = Load()
        self._limits = limits
        self._waiting = waiting
        self._metrics = metrics

    @property
    def wait_seconds(self) -> float:
        """How long a newcomer would wait until the model has done what is in flight."""
        return self._waiting(self.load.tokens)

    def enter(self, n_bytes: int) -> "Place":
        """Let a request in whose body has so many bytes, as declared.

        Returns its place, which is to be left at its end; a context manager.

        Raises:
            RequestError: 429, with the seconds after which to try again.
        """
        load, limits, wait = self.load, self._limits, self.wait_seconds
        if wait * 1000 > limits.max_wait_ms:
            raise self._refusal("wait", f"{wait:.1f} s of work are waiting, and the limit is {limits.max_wait_ms / 1000:g} s")
        if load.requests >= limits.max_requests_in_flight:
            raise self._refusal("requests", f"{load.requests} requests are in flight, which is the limit")
        if load.requests and load.bytes + n_bytes > limits.max_bytes_in_flight:
            raise self._refusal(
                "bytes", f"requests in flight hold {load.bytes} bytes, and the limit is {limits.max_bytes_in_flight}"
            )
        place = Place(self)
        load.requests += 1
        place.holds(n_bytes)
        return place

    def check_documents(self, n: int) -> None:
        """Raise RequestError 429 when there is no room for so many documents more."""
        held, most = self.load.documents, self._limits.max_documents_in_flight
        if held and held + n > most:
            raise self._refusal("documents", f"requests in flight hold {held} documents, and the limit is {most}")

    def _refusal(self, why: str, problem: str) -> RequestError:
        """What drains at the measured pace makes room: half of it does for the counts, what is too much for the time."""
        wait = self.wait_seconds
        seconds = wait - self._limits.max_wait_ms / 1000 if why == "wait" else wait / 2
        self._metrics.add("refused", why=why)
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
        load.tokens -= held.tokens
        self._held = Load()

    def holds(self, n_bytes: int) -> None:
        """The body has so many bytes."""
        self._admission.load.bytes += n_bytes - self._held.bytes
        self._held.bytes = n_bytes

    def reads(self, n_documents: int, tokens: float) -> None:
        """It asks for so many documents, which are going to be about so many tokens. Raises RequestError 429."""
        self._admission.check_documents(n_documents)
        self._held.documents, self._held.tokens = n_documents, tokens
        self._admission.load.documents += n_documents
        self._admission.load.tokens += tokens

    def queued(self) -> None:
        """The model has its tokens now, and counts them itself."""
        self._admission.load.tokens -= self._held.tokens
        self._held.tokens = 0.0
