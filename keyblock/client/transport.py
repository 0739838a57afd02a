"""What both clients know of httpx."""

from typing import Any

import httpx

from keyblock.client.retries import LEAST, Budget
from keyblock.client.steps import Failure

CONNECT_SECONDS = 5.0  # a host that says nothing: another attempt may reach another replica
MOST = 86_400.0  # seconds: sockets cannot count for ever
KEEP_SECONDS = 4.0  # uvicorn closes idle connections after 5: be the first, so that no request is sent into a closing one
READY_PAUSE = 0.05  # seconds between two questions for readiness


class Timeouts(dict[str, Any]):
    """httpx asks for a timeout at each phase of a request: what is left of the budget then, not what was left at the start."""

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self._budget = budget

    def get(self, key: str, default: Any = None) -> float:
        """Seconds for the phase."""
        left = min(max(self._budget.left, LEAST), MOST)
        return min(left, CONNECT_SECONDS) if key == "connect" else left


def limits(connections: int) -> httpx.Limits:
    """Of the pool: all connections are kept while they are used."""
    return httpx.Limits(max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=KEEP_SECONDS)


def failure(error: httpx.RequestError) -> Failure:
    """In words; a request that could never be sent is not tried again."""
    problem = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError):
        problem += " (is a service running there?)"
    hopeless = isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol | httpx.DecodingError)
    late = isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout | httpx.PoolTimeout)  # these have all the time there is
    return Failure(problem, again=not hopeless, late=late)
