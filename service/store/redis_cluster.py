"""The store for many replicas, and more documents than one server holds: a Redis Cluster, or Valkey's, with the same protocol.

There is a key for each document; the cluster's own hash spreads them over the servers. The documents of one server are read and
written in one round trip, and no command has keys of two servers. A server that is away takes only its own documents with it. A
change is acknowledged when as many replicas of its server have it as the settings require, so a failover does not lose it.
"""

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard, TypeVar

from redis.exceptions import ConnectionError, OutOfMemoryError

from service.store.base import AWAY, Away, DocumentStore, Item, Renewal, Size, StoreError
from service.store.cluster import UNREACHABLE, Answer, Cluster, Command
from service.store.redis_client import LARGEST, NO_ANSWER, RENEW, key_of, store_error

log = logging.getLogger(__name__)
PREFIX = b"keyblock{}:"  # Redis would hash only the {braces} of an id that has some; an empty pair before them turns that off

T = TypeVar("T")


class RedisClusterStore(DocumentStore):
    """Documents in a cluster that replicas share. A cluster that does not answer is an error at each use, but not at the start.

    Args:
        url: see Cluster.
        replicas: number of replicas of each server that must have a change before it is acknowledged.

    Raises StoreUnavailableError, one line, as Cluster does.
    """

    kind = "redis-cluster"
    largest = LARGEST

    def __init__(self, url: str, replicas: int = 1) -> None:
        self._replicas = replicas
        self._cluster = Cluster(url)

    def sizes(self, namespace: str, ids: Sequence[str]) -> list[int | Away]:
        """See DocumentStore."""
        return self._read("STRLEN", namespace, ids, _is_size)

    def get_many(self, namespace: str, ids: Sequence[str]) -> list[bytes | Away | None]:
        """See DocumentStore."""
        return self._read("GET", namespace, ids, _is_content)

    def put_many(self, namespace: str, items: Sequence[Item]) -> None:
        """See DocumentStore."""
        keys = [key_of(PREFIX, namespace, item.id) for item in items]
        until = [("PXAT", item.expires) if item.expires else () for item in items]
        self._change(
            [Command(key, ("SET", key, item.content, *when)) for key, item, when in zip(keys, items, until, strict=True)],
            self._replicas,
        )

    def renew_many(self, namespace: str, renewals: Sequence[Renewal]) -> None:
        """See DocumentStore."""
        keys = [key_of(PREFIX, namespace, item.id) for _, item in renewals]
        pairs = zip(keys, renewals, strict=True)
        self._change([Command(key, ("EVAL", RENEW, 1, key, head, item.content)) for key, (head, item) in pairs])

    def delete(self, namespace: str, identity: str) -> bool:
        """See DocumentStore."""
        key = key_of(PREFIX, namespace, identity)
        return bool(self._change([Command(key, ("DEL", key))], self._replicas)[0])

    def size(self) -> Size:
        """The size of all servers' databases together, so give the store a cluster of its own."""
        answering, away = self._ask_masters(("DBSIZE",), ("INFO", "memory"), ("INFO", "stats"))
        return Size(
            sum(count for count, _, _ in answering),
            sum(memory["used_memory"] for _, memory, _ in answering),
            sum(stats["evicted_keys"] for _, _, stats in answering),
            away,
        )

    def about(self) -> dict[str, Any]:
        """See DocumentStore."""
        answering, away = self._ask_masters(("INFO", "memory"))
        memories = [memory for (memory,) in answering]
        return {
            "kind": self.kind,
            "capacity_bytes": sum(memory["maxmemory"] for memory in memories),
            "evict": memories[0]["maxmemory_policy"],
            "servers": len(memories) + away,
            "servers_away": away,
            "replicas": self._replicas,
        }

    def close(self) -> None:
        """See DocumentStore."""
        self._cluster.close()

    def _read(self, word: str, namespace: str, ids: Sequence[str], fits: Callable[[Answer], TypeGuard[T]]) -> list[T | Away]:
        keys = [key_of(PREFIX, namespace, identity) for identity in ids]
        answers = self._cluster.send([Command(key, (word, key)) for key in keys])
        wrong = [one for one in answers if not fits(one) and not isinstance(one, NO_ANSWER)]
        for problem in dict.fromkeys(str(_error(one)) for one in wrong):
            log.warning("%s", problem)
        return [one if fits(one) else AWAY for one in answers]

    def _change(self, commands: Sequence[Command], replicas: int = 0) -> list[Answer]:
        """The answers. Raises StoreFullError or StoreUnavailableError if one of them is an error."""
        answers = self._cluster.send(commands, replicas=replicas)
        errors = [one for one in answers if isinstance(one, Exception)]
        if errors:
            raise store_error(next((one for one in errors if isinstance(one, OutOfMemoryError)), errors[0]))
        return answers

    def _ask_masters(self, *commands: Sequence[str]) -> tuple[list[list[Answer]], int]:
        """The answers of the masters, and the number of those that do not answer. Raises StoreUnavailableError if none does."""
        answers = self._cluster.ask_each(*commands)
        answering = [got for got in answers if not any(isinstance(one, Exception) for one in got)]
        if not answering:
            raise store_error(answers[0][0] if answers else ConnectionError(UNREACHABLE))
        return answering, len(answers) - len(answering)


def _is_size(answer: Answer) -> TypeGuard[int]:
    return isinstance(answer, int)


def _is_content(answer: Answer) -> TypeGuard[bytes | None]:
    return answer is None or isinstance(answer, bytes)


def _error(answer: Answer) -> StoreError:
    """The error for an invalid answer."""
    if isinstance(answer, Exception):
        return store_error(answer)
    return store_error(ValueError(f"{type(answer).__name__} where a document was asked for"))
