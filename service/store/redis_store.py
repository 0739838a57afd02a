"""The store for several replicas: Redis, or Valkey, which has the same protocol.

There is a key for each document, which the server lets expire. The server's settings decide how much it holds and which documents
it drops (`maxmemory` and `maxmemory-policy`), and how much a crash may lose (`appendfsync`): a change is acknowledged when the
server has accepted it.
"""

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from redis.exceptions import AuthenticationError, ClusterCrossSlotError, MovedError

from service.store.base import DocumentStore, Item, Renewal, Size, StoreUnavailableError
from service.store.redis_client import ERRORS, LARGEST, NO_ANSWER, RENEW, client_of, key_of, one_line, options_of, store_error

log = logging.getLogger(__name__)
PREFIX = b"keyblock:"
REST_SECONDS = 1.0  # for which a server that did not answer is left alone, since each try may cost seconds


class RedisStore(DocumentStore):
    """Documents in a Redis that replicas share. A server that does not answer is an error at each use, but not at the start.

    Args:
        url: ``redis://[user:password@]host[:port][/database]``, ``rediss://`` for TLS, ``unix://`` for a socket.

    Raises StoreUnavailableError, one line, when the URL is invalid or the server refuses the password.
    """

    kind = "redis"
    largest = LARGEST

    def __init__(self, url: str) -> None:
        try:
            self._redis = client_of(options_of(url))
        except ValueError:  # its message may quote a part of the password
            raise StoreUnavailableError(
                "the store's URL is not one of Redis: give redis://[user:password@]host[:port][/database], "
                "with special characters as %XX"
            ) from None
        self._resting_until = 0.0
        self._renew = self._redis.register_script(RENEW)
        try:
            self._redis.ping()
        except AuthenticationError as error:
            raise StoreUnavailableError(f"Redis refuses the store's user and password: {one_line(error)}") from None
        except ERRORS as error:
            log.warning("Redis does not answer (%s): requests by id are refused until it does", one_line(error))

    def sizes(self, namespace: str, ids: Sequence[str]) -> list[int]:
        """See DocumentStore."""
        with self._clear_errors(), self._redis.pipeline(transaction=False) as pipe:
            for identity in ids:
                pipe.strlen(key_of(PREFIX, namespace, identity))
            return [int(size) for size in pipe.execute()]

    def get_many(self, namespace: str, ids: Sequence[str]) -> list[bytes | None]:
        """See DocumentStore."""
        with self._clear_errors():
            found: list[Any] = self._redis.mget([key_of(PREFIX, namespace, identity) for identity in ids]) if ids else []
            if len(found) != len(ids) or not all(isinstance(content, bytes | None) for content in found):
                raise ValueError(f"{len(found)} values where {len(ids)} were asked for")
        return found

    def put_many(self, namespace: str, items: Sequence[Item]) -> None:
        """See DocumentStore."""
        with self._clear_errors(), self._redis.pipeline(transaction=True) as pipe:
            for item in items:
                pipe.set(key_of(PREFIX, namespace, item.id), item.content, pxat=item.expires or None)
            pipe.execute()

    def renew_many(self, namespace: str, renewals: Sequence[Renewal]) -> None:
        """See DocumentStore."""
        with self._clear_errors(), self._redis.pipeline(transaction=False) as pipe:
            for head, item in renewals:
                self._renew(keys=[key_of(PREFIX, namespace, item.id)], args=[head, item.content], client=pipe)
            pipe.execute()

    def delete(self, namespace: str, identity: str) -> bool:
        """See DocumentStore."""
        with self._clear_errors():
            return bool(self._redis.delete(key_of(PREFIX, namespace, identity)))

    def size(self) -> Size:
        """The size of the whole database, so give the store one of its own."""
        with self._clear_errors():
            memory, stats = self._redis.info("memory"), self._redis.info("stats")
            return Size(int(self._redis.dbsize()), int(memory["used_memory"]), int(stats["evicted_keys"]))

    def about(self) -> dict[str, Any]:
        """See DocumentStore."""
        with self._clear_errors():
            memory = self._redis.info("memory")
            return {"kind": self.kind, "capacity_bytes": memory.get("maxmemory"), "evict": memory.get("maxmemory_policy")}

    def close(self) -> None:
        """See DocumentStore."""
        self._redis.close()

    @contextmanager
    def _clear_errors(self) -> Iterator[None]:
        """Turn errors of the client and the server into one line. A server that did not answer is left alone for a moment."""
        if time.perf_counter() < self._resting_until:
            raise StoreUnavailableError("the store does not answer: Redis could not be reached a moment ago")
        try:
            yield
        except ERRORS as error:
            if isinstance(error, NO_ANSWER):
                self._resting_until = time.perf_counter() + REST_SECONDS
            if isinstance(error, ClusterCrossSlotError | MovedError):
                raise StoreUnavailableError("the store's URL names a server of a Redis Cluster: give redis+cluster://") from None
            raise store_error(error) from None
