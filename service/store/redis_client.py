"""What the stores in Redis share: a client of one server that waits for it only so long, and its errors as the store's."""

from collections.abc import Mapping
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import Connection, parse_url
from redis.exceptions import ConnectionError, OutOfMemoryError, RedisError, TimeoutError
from redis.retry import Retry

from service.machine import ASYNCIO, Clock
from service.store.base import HEAD, StoreError, StoreFullError, StoreUnavailableError
from service.store.bounded import bounded

LARGEST = 100 << 20  # bytes of a document: an answer that has more is not read, see `bounded`
CONNECT_SECONDS, ANSWER_SECONDS = 0.5, 2.0
NO_ANSWER = (ConnectionError, TimeoutError)
NONSENSE = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What the client stumbles over where an answer is none that Redis gives."""
ERRORS = (RedisError, *NONSENSE)
RENEW = f"""
if redis.call('GETRANGE', KEYS[1], 0, {HEAD - 1}) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
end
"""


def options_of(url: str) -> dict[str, Any]:
    """Of connections to the server that a URL names. Raises ValueError, which may quote a part of the password."""
    options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    return options


def client_of(options: Mapping[str, Any], clock: Clock = ASYNCIO.now) -> "redis.Redis":
    """A client of a server, which need not be there.

    Args:
        options: as `options_of` gives them; what a URL says of time goes before ours.
        clock: says how long an answer takes.
    """
    own: dict[str, Any] = {
        "connection_class": Connection,
        "socket_connect_timeout": CONNECT_SECONDS,
        "socket_timeout": ANSWER_SECONDS,
        # a connection that the server has closed meanwhile is opened again; one that hangs is not waited for twice
        "retry": Retry(NoBackoff(), 1, (ConnectionError,)),
    }
    together = own | dict(options)
    together["connection_class"] = bounded(together["connection_class"], clock)
    return redis.Redis.from_pool(redis.ConnectionPool(**together))


def key_of(prefix: bytes, namespace: str, identity: str) -> bytes:
    """The key of a document. No namespace holds a colon, so no two of these are equal."""
    return prefix + f"{namespace}:{identity}".encode("utf-8", "surrogatepass")


def store_error(error: Exception) -> StoreError:
    """The store's error for one of the client or the server, in one line."""
    if isinstance(error, OutOfMemoryError):
        return StoreFullError(
            "the store is full: Redis has reached its maxmemory; delete documents, raise it, or set a maxmemory-policy"
        )
    if isinstance(error, NO_ANSWER):
        return StoreUnavailableError(f"the store does not answer: {line_of(error)}")
    if isinstance(error, RedisError):
        return StoreUnavailableError(f"the store refuses: {line_of(error)}")
    return StoreUnavailableError(f"the store's answer is none that Redis gives: {line_of(error)}")


def line_of(error: Exception) -> str:
    """One line, not too long, of what may be many."""
    return " ".join(str(error).split())[:200]
