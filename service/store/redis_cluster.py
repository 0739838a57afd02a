"""The store for many replicas, and more documents than one server holds: a Redis Cluster, or Valkey's, with the same protocol.

There is a key for each document; the cluster's own hash spreads them over the servers. The documents of one server are read and
written in one round trip, and no command has keys of two servers. A server that is away takes only its own documents with it. A
change is acknowledged when as many replicas of its server have it as the settings require, so a failover does not lose it.

redis-py knows which server has which slot, but its pipeline for clusters fails as a whole if one server is away. Here, each server
gets a pipeline of its own, all at once. A server that failed once gets no more commands until a thread has reached it again: an
outage costs one timeout for the requests that meet it first, and nothing for those after them.
"""

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import UnionType
from typing import Any, NamedTuple

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    OutOfMemoryError,
    RedisClusterException,
    RedisError,
    ResponseError,
    SlotNotCoveredError,
)

from service.store.base import AWAY, Away, DocumentStore, Item, Renewal, Size, StoreError, StoreUnavailableError
from service.store.redis_client import (
    ANSWER_SECONDS,
    ERRORS,
    LARGEST,
    NO_ANSWER,
    RENEW,
    OurPool,
    key_of,
    one_line,
    options_of,
    store_error,
)

log = logging.getLogger(__name__)
PREFIX = b"keyblock{}:"  # Redis would hash only the {braces} of an id that has some; an empty pair before them turns that off
MARK = "+cluster://"
MOST_HOPS = 5  # of a command that is sent on: a slot moves seldom, and servers that contradict each other are not waited for
THREADS = 64  # pipelines under way; each thread of the service has at most one to each server
WAIT_MILLISECONDS = int(ANSWER_SECONDS * 500)  # that replicas get to confirm
REFRESH_SECONDS = 10.0  # between two reads of the map if all is well: a new server is noticed after this time
RETRY_SECONDS = 0.25  # between two tries while a server does not answer
UNREACHABLE = "no server of the cluster could be reached"
WRONG_URL = (
    "the store's URL is not one of a Redis Cluster: give redis+cluster://[user:password@]host:port[,host:port]..., without a "
    "database, with special characters as %XX"
)

Words = tuple[bytes | str | int, ...]
Answer = Any
"""The server's answer to a command, or the error in its place."""


class UnconfirmedError(RedisError):
    """A change is on its server, but not on as many replicas as required."""


class Command(NamedTuple):
    """A command of one key; its words include the key."""

    key: bytes
    words: Words


class Cluster:
    """Sends commands over a cluster. A cluster that does not answer is no error here.

    Args:
        url: ``redis+cluster://[user:password@]host:port[,host:port]...``, ``rediss+cluster://`` for TLS.

    Raises StoreUnavailableError, one line, if the URL is invalid, the password is refused, or the server belongs to no cluster.
    """

    def __init__(self, url: str) -> None:
        self._url, self._others = parsed(url)
        self._cluster: Any = None  # redis-py gives clusters no types
        self._away: set[str] = set()  # names of servers that did not answer
        self._threads = ThreadPoolExecutor(THREADS, "store-server")
        self._wake, self._closed = threading.Event(), threading.Event()
        self._read_map(at_start=True)
        if self._cluster is None:
            self._wake.set()  # look for it again soon
        self._watcher = threading.Thread(target=self._watch, name="store-watch", daemon=True)
        self._watcher.start()

    def send(self, commands: Sequence[Command], *, replicas: int = 0) -> list[Answer]:
        """The answers, in order; errors are answers too. Commands of one key are carried out in their order.

        Args:
            commands: of one key each.
            replicas: number of replicas of each server that must have its changes; otherwise the answers are UnconfirmedErrors.
        """
        answers: list[Answer] = [ConnectionError(UNREACHABLE)] * len(commands)
        parts: dict[str, tuple[ClusterNode, list[int]]] = {}  # by the name of their server
        for number, command in enumerate(commands):
            if (owner := self._owner(command.key)) is not None:
                parts.setdefault(owner.name, (owner, []))[1].append(number)
        work = [
            (numbers, self._threads.submit(self._ask, server, [commands[number] for number in numbers], replicas))
            for server, numbers in parts.values()
        ]
        for numbers, asked in work:
            for number, answer in zip(numbers, asked.result(), strict=True):
                answers[number] = answer
        for number, command in enumerate(commands):
            answers[number] = self._followed(command, answers[number], replicas)
        return answers

    def _followed(self, command: Command, answer: Answer, replicas: int) -> Answer:
        """The answer of the server to which other servers send a command on, because the key's slot moves or has moved."""
        for _ in range(MOST_HOPS):
            if not isinstance(answer, AskError):
                break
            self._wake.set()  # the map is old
            owner = self._owner(command.key)
            host = answer.host or (owner.host if owner else "")  # without a host it is the one that was asked
            server = self._cluster.get_node(host, answer.port) or _node(host, answer.port)  # it may be new
            (answer,) = self._ask(server, [command], replicas, asking=not isinstance(answer, MovedError))
        return answer

    def ask_each(self, *commands: Words) -> list[list[Answer]]:
        """The answers of each master to commands without a key."""
        return list(self._threads.map(lambda server: self._pipelined(server, commands), self.masters()))

    def masters(self) -> list[ClusterNode]:
        """The servers that have slots, as far as known."""
        return [] if self._cluster is None else list(self._cluster.get_primaries())

    def close(self) -> None:
        """End the threads and the connections."""
        self._closed.set()
        self._wake.set()
        self._watcher.join()
        self._threads.shutdown(wait=True)
        if self._cluster is not None:
            self._cluster.close()

    def _owner(self, key: bytes) -> ClusterNode | None:
        """The server that has the key's slot; None while no server has given a map, or the slot has no server."""
        try:
            owner: ClusterNode | None = None if self._cluster is None else self._cluster.get_node_from_key(key)
        except SlotNotCoveredError:
            return None
        return owner

    def _client(self, server: ClusterNode) -> redis.Redis:
        client: redis.Redis = self._cluster.get_redis_connection(server)
        return client

    def _ask(self, server: ClusterNode, commands: Sequence[Command], replicas: int, *, asking: bool = False) -> list[Answer]:
        """The answers of one server; `asking`, if it is only about to get the slot of the one command."""
        words: list[Words] = [("ASKING",)] * asking + [command.words for command in commands]
        if replicas:
            words.append(("WAIT", replicas, WAIT_MILLISECONDS))
        got = self._pipelined(server, words)
        answers = got[asking : asking + len(commands)]
        if replicas and not (isinstance(got[-1], int) and got[-1] >= replicas):
            problem = UnconfirmedError(f"{got[-1]} of {replicas} replicas have what was stored (KEYBLOCK_STORE_REPLICAS)")
            return [one if isinstance(one, Exception) else problem for one in answers]
        return answers

    def _pipelined(self, server: ClusterNode, words: Sequence[Words]) -> list[Answer]:
        if server.name in self._away:
            return [ConnectionError(f"{server.name} could not be reached a moment ago")] * len(words)
        try:
            with self._client(server).pipeline(transaction=False) as pipe:
                for one in words:
                    pipe.execute_command(*one)  # type: ignore[no-untyped-call]
                got: list[Answer] = pipe.execute(raise_on_error=False)
        except ERRORS as error:
            got = [error] * len(words)
        # ClusterDownError: it is cut off from the others, and has lost its slots
        if all(isinstance(one, (*NO_ANSWER, ClusterDownError)) for one in got):
            if server.name not in self._away:
                log.warning("%s of the store's cluster does not answer: %s", server.name, one_line(got[0]))
            self._away.add(server.name)
            self._wake.set()
        return got

    def _watch(self) -> None:
        while True:
            self._wake.wait(REFRESH_SECONDS)
            self._wake.clear()
            if self._closed.is_set():
                return
            self._read_map()
            masters = self.masters()
            self._away &= {server.name for server in masters}
            for server in masters:
                if server.name in self._away:
                    self._try(server)
            if self._away or not masters:
                self._wake.set()
                self._closed.wait(RETRY_SECONDS)

    def _read_map(self, *, at_start: bool = False) -> None:
        """Read who has which slot. `at_start`, raises StoreUnavailableError if a retry cannot help."""
        try:
            if self._cluster is None:
                self._cluster = RedisCluster(
                    url=self._url,
                    startup_nodes=[_node(*other) for other in self._others],
                    require_full_coverage=False,
                    dynamic_startup_nodes=False,  # the names of the URL outlive addresses, which come and go with pods
                    connection_pool_class=OurPool,
                )
            else:
                reachable = [(one.host, one.port) for one in self.masters() if one.name not in self._away]
                self._cluster.nodes_manager.initialize(additional_startup_nodes_info=reachable)
        except (*ERRORS, RedisClusterException) as error:
            if not at_start:
                return
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            if isinstance(cause, AuthenticationError):
                raise StoreUnavailableError(f"Redis refuses the store's user and password: {one_line(cause)}") from None
            if isinstance(cause, RedisClusterException | ResponseError):
                raise StoreUnavailableError(
                    f"the store's URL names a server that is of no Redis Cluster ({one_line(cause)}): "
                    "give redis:// for one server alone"
                ) from None
            log.warning("the store's cluster does not answer (%s): documents by id cannot be had until it does", one_line(cause))

    def _try(self, server: ClusterNode) -> None:
        with suppress(*ERRORS):
            if self._client(server).cluster("INFO")["cluster_state"] == "ok":  # it must first learn of the others
                self._away.discard(server.name)
                log.warning("%s of the store's cluster answers again", server.name)


def _node(host: str, port: int) -> ClusterNode:
    return ClusterNode(host, port)  # type: ignore[no-untyped-call]


def parsed(url: str) -> tuple[str, list[tuple[str, int]]]:
    """The URL of the first server, and hosts and ports of the others. Raises StoreUnavailableError, without the password."""
    scheme, _, rest = url.partition(MARK)
    end = min((rest.find(mark) for mark in "/?" if mark in rest), default=len(rest))
    login, at, hosts = rest[:end].rpartition("@")
    try:
        urls = [f"{scheme}://{login}{at}{host}{rest[end:]}" for host in hosts.split(",")]
        each = [options_of(one) for one in urls]
        addresses = [(one["host"], one.get("port", 6379)) for one in each]
    except (ValueError, KeyError):
        raise StoreUnavailableError(WRONG_URL) from None
    if each[0].get("db"):
        raise StoreUnavailableError(WRONG_URL)
    return urls[0], addresses[1:]


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
        return self._read("STRLEN", namespace, ids, int)

    def get_many(self, namespace: str, ids: Sequence[str]) -> list[bytes | Away | None]:
        """See DocumentStore."""
        return self._read("GET", namespace, ids, bytes | None)

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

    def _read(self, word: str, namespace: str, ids: Sequence[str], kind: type | UnionType) -> list[Any]:
        """The answers of this kind; AWAY in place of others, which are logged unless the server does not answer."""
        keys = [key_of(PREFIX, namespace, identity) for identity in ids]
        answers = self._cluster.send([Command(key, (word, key)) for key in keys])
        wrong = [one for one in answers if not isinstance(one, kind) and not isinstance(one, NO_ANSWER)]
        for problem in dict.fromkeys(str(_error(one)) for one in wrong):
            log.warning("%s", problem)
        return [one if isinstance(one, kind) else AWAY for one in answers]

    def _change(self, commands: Sequence[Command], replicas: int = 0) -> list[Answer]:
        """The answers. Raises StoreFullError or StoreUnavailableError if one of them is an error."""
        answers = self._cluster.send(commands, replicas=replicas)
        errors = [one for one in answers if isinstance(one, Exception)]
        if errors:
            raise store_error(next((one for one in errors if isinstance(one, OutOfMemoryError)), errors[0]))
        return answers

    def _ask_masters(self, *commands: Words) -> tuple[list[list[Answer]], int]:
        """The answers of the masters, and the number of those that do not answer. Raises StoreUnavailableError if none does."""
        answers = self._cluster.ask_each(*commands)
        answering = [got for got in answers if not any(isinstance(one, Exception) for one in got)]
        if not answering:
            raise store_error(answers[0][0] if answers else ConnectionError(UNREACHABLE))
        return answering, len(answers) - len(answering)


def _error(answer: Answer) -> StoreError:
    """The error for an invalid answer."""
    wrong = ValueError(f"{type(answer).__name__} where a document was asked for")
    return store_error(answer if isinstance(answer, Exception) else wrong)
