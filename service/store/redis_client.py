"""The common part of the stores in Redis: a client of one server, and its errors as the store's errors."""

from collections.abc import Mapping
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.connection import parse_url
from redis.exceptions import ConnectionError, OutOfMemoryError, RedisError, TimeoutError
from redis.retry import Retry

from service.store.base import HEAD, StoreError, StoreFullError, StoreUnavailableError

LARGEST = 100 << 20  # bytes of a document
CONNECT_SECONDS, ANSWER_SECONDS = 0.5, 2.0
NO_ANSWER = (ConnectionError, TimeoutError)
BAD_ANSWER = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors that the client raises on an answer that no Redis gives."""
ERRORS = (RedisError, *BAD_ANSWER)
RENEW = f"""
if redis.call('GETRANGE', KEYS[1], 0, {HEAD - 1}) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
end
"""


def options_of(url: str) -> dict[str, Any]:
    """Options of connections to the server of a URL. Raises ValueError, whose message may quote a part of the password."""
    options: dict[str, Any] = parse_url(url)  # type: ignore[no-untyped-call]
    return options


class OurPool(redis.ConnectionPool):
    """Connections to a server whose answers are waited for with limits; time limits among the options replace ours."""

    def __init__(self, **options: Any) -> None:
        limits = {"socket_connect_timeout": CONNECT_SECONDS, "socket_timeout": ANSWER_SECONDS}
        # a connection that the server has closed meanwhile is opened again; a server that hangs is not tried twice
        again = {"retry": Retry(NoBackoff(), 1, (ConnectionError,))}
        super().__init__(**limits | options | again)


def client_of(options: Mapping[str, Any]) -> "redis.Redis":
    """A client of a server, which need not run yet.

    Args:
        options: as `options_of` gives them.
    """
    return redis.Redis.from_pool(OurPool(**options))


def key_of(prefix: bytes, namespace: str, identity: str) -> bytes:
    """The key of a document. Keys are unique, since no namespace holds a colon."""
    return prefix + f"{namespace}:{identity}".encode("utf-8", "surrogatepass")


def store_error(error: Exception) -> StoreError:
    """The store's error for an error of the client or the server, in one line."""
    if isinstance(error, OutOfMemoryError):
        return StoreFullError(
            "the store is full: Redis has reached its maxmemory; delete documents, raise it, or set a maxmemory-policy"
        )
    if isinstance(error, NO_ANSWER):
        return StoreUnavailableError(f"the store does not answer: {one_line(error)}")
    if isinstance(error, RedisError):
        return StoreUnavailableError(f"the store refuses: {one_line(error)}")
    return StoreUnavailableError(f"the store's answer is none that Redis gives: {one_line(error)}")


def one_line(error: Exception) -> str:
    """An error's message as one line of limited length."""
    return " ".join(str(error).split())[:200]
