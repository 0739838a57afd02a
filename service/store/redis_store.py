"""The store for several replicas: Redis, or Valkey, which speaks the same.

A key for each document, whose expiry is the server's. How much it holds and what it forgets is for the server to say (`maxmemory`
and `maxmemory-policy`), and how much a crash of the server may lose (`appendfsync`): acknowledged is what the server has accepted.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError, ConnectionError, OutOfMemoryError, RedisError, TimeoutError
from redis.retry import Retry

from service.store.base import HEAD, DocumentStore, Item, Renewal, Size, StoreFullError, StoreUnavailableError
from service.store.bounded import bounded

log = logging.getLogger(__name__)
PREFIX = b"keyblock:"
CONNECT_SECONDS, ANSWER_SECONDS = 0.5, 2.0
REST_SECONDS = 1.0  # after a server did not answer it is not asked again for so long: each try may cost the above
NONSENSE = (ArithmeticError, AssertionError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What the client stumbles over where an answer is none that Redis gives."""
_RENEW = f"""
if redis.call('GETRANGE', KEYS[1], 0, {HEAD - 1}) == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[2], 'KEEPTTL')
end
"""


class RedisStore(DocumentStore):
    """Documents in a Redis that replicas share. A server that does not answer is no error here, but at each use.

    Args:
        url: ``redis://[user:password@]host[:port][/database]``, ``rediss://`` for TLS, ``unix://`` for a socket.

    Raises StoreUnavailableError, one line, when the URL is none or the server refuses the password.
    """

    kind = "redis"
    largest = 100 << 20  # an answer that has more is not read, see `bounded`

    def __init__(self, url: str) -> None:
        try:
            self._redis = redis.Redis.from_url(
                url,
                socket_connect_timeout=CONNECT_SECONDS,
                socket_timeout=ANSWER_SECONDS,
                retry=Retry(NoBackoff(), 1),  # a connection that the server has closed meanwhile is opened again
            )
        except ValueError:  # which may quote a part of the password
            raise StoreUnavailableError(
                "the store's URL is not one of Redis: give redis://[user:password@]host[:port][/database], "
                "with special characters as %XX"
            ) from None
        pool = self._redis.connection_pool
        pool.connection_class = bounded(pool.connection_class)
        self._resting_until = 0.0
        self._renew = self._redis.register_script(_RENEW)
        self._check()

    def sizes(self, namespace: str, ids: Sequence[str]) -> list[int]:
        """See DocumentStore."""
        with self._clear(), self._redis.pipeline(transaction=False) as pipe:
            for identity in ids:
                pipe.strlen(_key(namespace, identity))
            return [int(size) for size in pipe.execute()]

    def get_many(self, namespace: str, ids: Sequence[str]) -> list[bytes | None]:
        """See DocumentStore."""
        with self._clear():
            found: list[Any] = self._redis.mget([_key(namespace, identity) for identity in ids]) if ids else []
            if len(found) != len(ids) or not all(isinstance(content, bytes | None) for content in found):
                raise ValueError(f"{len(found)} values where {len(ids)} were asked for")
        return found

    def put_many(self, namespace: str, items: Sequence[Item]) -> None:
        """See DocumentStore."""
        with self._clear(), self._redis.pipeline(transaction=True) as pipe:
            for item in items:
                pipe.set(_key(namespace, item.id), item.content, pxat=item.expires or None)
            pipe.execute()

    def renew_many(self, namespace: str, renewals: Sequence[Renewal]) -> None:
        """See DocumentStore."""
        with self._clear(), self._redis.pipeline(transaction=False) as pipe:
            for head, item in renewals:
                self._renew(keys=[_key(namespace, item.id)], args=[head, item.content], client=pipe)
            pipe.execute()

    def delete(self, namespace: str, identity: str) -> bool:
        """See DocumentStore."""
        with self._clear():
            return bool(self._redis.delete(_key(namespace, identity)))

    def size(self) -> Size:
        """The whole database's: give the store one of its own."""
        with self._clear():
            memory, stats = self._redis.info("memory"), self._redis.info("stats")
            return Size(int(self._redis.dbsize()), int(memory["used_memory"]), int(stats["evicted_keys"]))

    def about(self) -> dict[str, Any]:
        """See DocumentStore."""
        with self._clear():
            memory = self._redis.info("memory")
            return {"kind": self.kind, "capacity_bytes": memory.get("maxmemory"), "evict": memory.get("maxmemory_policy")}

    def close(self) -> None:
        """See DocumentStore."""
        self._redis.close()

    def _check(self) -> None:
        try:
            self._redis.ping()
        except AuthenticationError as error:
            raise StoreUnavailableError(f"Redis refuses the store's user and password: {_line(error)}") from None
        except (RedisError, *NONSENSE) as error:
            log.warning("Redis does not answer (%s): requests by id are refused until it does", _line(error))

    @contextmanager
    def _clear(self) -> Iterator[None]:
        """What the client and the server say becomes one line; no thread waits again and again for a server that is away."""
        if time.monotonic() < self._resting_until:
            raise StoreUnavailableError("the store does not answer: Redis could not be reached a moment ago")
        try:
            yield
        except OutOfMemoryError:
            raise StoreFullError(
                "the store is full: Redis has reached its maxmemory; delete documents, raise it, or set a maxmemory-policy"
            ) from None
        except (ConnectionError, TimeoutError) as error:
            self._resting_until = time.monotonic() + REST_SECONDS
            raise StoreUnavailableError(f"the store does not answer: {_line(error)}") from None
        except RedisError as error:
            raise StoreUnavailableError(f"the store refuses: {_line(error)}") from None
        except NONSENSE as error:
            raise StoreUnavailableError(f"the store's answer is none that Redis gives: {_line(error)}") from None


def _key(namespace: str, identity: str) -> bytes:
    """No namespace holds a colon, so no two of these are equal."""
    return PREFIX + f"{namespace}:{identity}".encode("utf-8", "surrogatepass")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
