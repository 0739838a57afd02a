"""The store for several replicas: Redis, or Valkey, which speaks the same.

A key for each document, whose expiry is the server's. How much it holds and what it forgets is for the server to say (`maxmemory`
and `maxmemory-policy`), and how much a crash of the server may lose (`appendfsync`): acknowledged is what the server has accepted.
"""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redis.exceptions import AuthenticationError, ClusterCrossSlotError, MovedError

from service.machine import ASYNCIO, Clock
from service.store.base import DocumentStore, Item, Renewal, Size, StoreUnavailableError
from service.store.redis_client import ERRORS, LARGEST, NO_ANSWER, RENEW, client_of, key_of, line_of, options_of, store_error

log = logging.getLogger(__name__)
PREFIX = b"keyblock:"
REST_SECONDS = 1.0  # after a server did not answer it is not asked again for so long: each try may cost seconds


class RedisStore(DocumentStore):
    """Documents in a Redis that replicas share. A server that does not answer is no error here, but at each use.

    Args:
        url: ``redis://[user:password@]host[:port][/database]``, ``rediss://`` for TLS, ``unix://`` for a socket.
        connection: the client's class of connections; the one that the URL asks for where it is left out.
        clock: says for how long a server is left alone.

    Raises StoreUnavailableError, one line, when the URL is none or the server refuses the password.
    """

    kind = "redis"
    largest = LARGEST

    def __init__(self, url: str, connection: type | None = None, clock: Clock = ASYNCIO.now) -> None:
        try:
            self._redis = client_of(options_of(url) | ({"connection_class": connection} if connection else {}), clock)
        except ValueError:  # which may quote a part of the password
            raise StoreUnavailableError(
                "the store's URL is not one of Redis: give redis://[user:password@]host[:port][/database], "
                "with special characters as %XX"
            ) from None
        self._resting_until, self._clock = 0.0, clock
        self._renew = self._redis.register_script(RENEW)
        self._check()

    def sizes(self, namespace: str, ids: Sequence[str]) -> list[int]:
        """See DocumentStore."""
        with self._clear(), self._redis.pipeline(transaction=False) as pipe:
            for identity in ids:
                pipe.strlen(key_of(PREFIX, namespace, identity))
            return [int(size) for size in pipe.execute()]

    def get_many(self, namespace: str, ids: Sequence[str]) -> list[bytes | None]:
        """See DocumentStore."""
        with self._clear():
            found: list[Any] = self._redis.mget([key_of(PREFIX, namespace, identity) for identity in ids]) if ids else []
            if len(found) != len(ids) or not all(isinstance(content, bytes | None) for content in found):
                raise ValueError(f"{len(found)} values where {len(ids)} were asked for")
        return found

    def put_many(self, namespace: str, items: Sequence[Item]) -> None:
        """See DocumentStore."""
        with self._clear(), self._redis.pipeline(transaction=True) as pipe:
            for item in items:
                pipe.set(key_of(PREFIX, namespace, item.id), item.content, pxat=item.expires or None)
            pipe.execute()

    def renew_many(self, namespace: str, renewals: Sequence[Renewal]) -> None:
        """See DocumentStore."""
        with self._clear(), self._redis.pipeline(transaction=False) as pipe:
            for head, item in renewals:
                self._renew(keys=[key_of(PREFIX, namespace, item.id)], args=[head, item.content], client=pipe)
            pipe.execute()

    def delete(self, namespace: str, identity: str) -> bool:
        """See DocumentStore."""
        with self._clear():
            return bool(self._redis.delete(key_of(PREFIX, namespace, identity)))

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
            raise StoreUnavailableError(f"Redis refuses the store's user and password: {line_of(error)}") from None
        except ERRORS as error:
            log.warning("Redis does not answer (%s): requests by id are refused until it does", line_of(error))

    @contextmanager
    def _clear(self) -> Iterator[None]:
        """What the client and the server say becomes one line; no thread waits again and again for a server that is away."""
        if self._clock() < self._resting_until:
            raise StoreUnavailableError("the store does not answer: Redis could not be reached a moment ago")
        try:
            yield
        except ERRORS as error:
            if isinstance(error, NO_ANSWER):
                self._resting_until = self._clock() + REST_SECONDS
            if isinstance(error, ClusterCrossSlotError | MovedError):
                raise StoreUnavailableError("the store's URL names a server of a Redis Cluster: give redis+cluster://") from None
            raise store_error(error) from None
