"""The use of httpx that both clients share."""

from typing import Any

import httpx

from keyblock.client.calls import Failure
from keyblock.client.retries import LEAST, Budget

CONNECT_SECONDS = 5.0  # then another attempt may reach another replica
MOST = 86_400.0  # seconds: sockets limit their timeouts
KEEP_SECONDS = 4.0  # uvicorn closes idle connections after 5: close earlier, so that no request goes into a closing one


class Timeouts(dict[str, Any]):
    """Timeouts that httpx reads at each phase of a request: the rest of the budget at that time, not at the start."""

    def __init__(self, budget: Budget) -> None:
        super().__init__()
        self._budget = budget

    def get(self, key: str, default: Any = None) -> float:
        """The timeout of a phase in seconds."""
        left = min(max(self._budget.left, LEAST), MOST)
        return min(left, CONNECT_SECONDS) if key == "connect" else left


def limits(connections: int) -> httpx.Limits:
    """The limits of the pool: it keeps all connections until they are idle for KEEP_SECONDS."""
    return httpx.Limits(max_connections=connections, max_keepalive_connections=connections, keepalive_expiry=KEEP_SECONDS)


def failure(error: httpx.RequestError) -> Failure:
    """The failure with a message in words; a request that can never be sent is not retried."""
    problem = str(error) or type(error).__name__
    if isinstance(error, httpx.ConnectError):
        problem += " (is a service running there?)"
    hopeless = isinstance(error, httpx.LocalProtocolError | httpx.UnsupportedProtocol | httpx.DecodingError)
    late = isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout | httpx.PoolTimeout)  # these have the whole budget
    return Failure(problem, again=not hopeless, late=late)
