"""Sends commands of one key each over a Redis Cluster, of which each server fails alone.

redis-py knows which server has which slot, but its pipeline for clusters fails as a whole if one server is away. Here, each server
gets a pipeline of its own, all at once, and moved keys are sent on together. A server that failed once gets no more commands until
a thread has reached it again: an outage costs one timeout for the requests that meet it first, and nothing for those after them.
"""

import logging
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import groupby
from typing import Any, NamedTuple

import redis
from redis.cluster import ClusterNode, RedisCluster
from redis.exceptions import (
    AskError,
    AuthenticationError,
    ClusterDownError,
    ConnectionError,
    MovedError,
    RedisClusterException,
    RedisError,
    ResponseError,
    SlotNotCoveredError,
)

from service.store.base import StoreUnavailableError
from service.store.redis_client import ANSWER_SECONDS, ERRORS, NO_ANSWER, BoundedPool, one_line, options_of

log = logging.getLogger(__name__)
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

Answer = Any
"""The server's answer to a command, or the error in its place."""


class UnconfirmedError(RedisError):
    """A change is on its server, but not on as many replicas as required."""


class Command(NamedTuple):
    """A command of one key; its words include the key."""

    key: bytes
    words: tuple[bytes | str | int, ...]


class _InFlight(NamedTuple):
    """A command on its way: the number of its answer, its server, and whether the server is only about to get the key's slot."""

    number: int
    server: ClusterNode
    asking: bool = False


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
        self._watcher = threading.Thread(target=self._watch, name="store-watch", daemon=True)
        self._watcher.start()

    def send(self, commands: Sequence[Command], *, replicas: int = 0) -> list[Answer]:
        """The answers, in order; errors are answers too. Commands of one key are carried out in their order.

        Args:
            commands: of one key each.
            replicas: number of replicas of each server that must have its changes; otherwise the answers are UnconfirmedErrors.
        """
        answers: list[Answer] = [ConnectionError(UNREACHABLE)] * len(commands)
        owners = enumerate(self._owner(command.key) for command in commands)
        left = [_InFlight(number, owner) for number, owner in owners if owner is not None]
        for _ in range(MOST_HOPS):
            parts = _by_server(left)
            work = self._threads.map(lambda part: self._ask(part, commands, replicas), parts)
            for part, got in zip(parts, work, strict=True):
                for sent, answer in zip(part, got, strict=True):
                    answers[sent.number] = answer
            left = [self._redirected(sent, answers[sent.number]) for sent in left if isinstance(answers[sent.number], AskError)]
            if not left:
                break
            self._wake.set()  # the map is old
        return answers

    def ask_each(self, *commands: Sequence[str]) -> list[list[Answer]]:
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

    def _ask(self, part: Sequence[_InFlight], commands: Sequence[Command], replicas: int) -> list[Answer]:
        """The answers of one server to its part of the commands."""
        words: list[Sequence[bytes | str | int]] = []
        for sent in part:
            words += [("ASKING",)] * sent.asking + [commands[sent.number].words]
        places = [number for number, one in enumerate(words) if one != ("ASKING",)]
        if replicas:
            words.append(("WAIT", replicas, WAIT_MILLISECONDS))
        got = self._pipelined(part[0].server, words)
        answers = [got[place] for place in places]
        if replicas and not (isinstance(got[-1], int) and got[-1] >= replicas):
            problem = UnconfirmedError(f"{got[-1]} of {replicas} replicas have what was stored (KEYBLOCK_STORE_REPLICAS)")
            return [one if isinstance(one, Exception) else problem for one in answers]
        return answers

    def _pipelined(self, server: ClusterNode, words: Sequence[Sequence[bytes | str | int]]) -> list[Answer]:
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

    def _redirected(self, sent: _InFlight, error: AskError) -> _InFlight:
        """The command, for the server that the error names, which may be new; without a host it is the host that was asked."""
        host = error.host or sent.server.host
        server = self._cluster.get_node(host, error.port) or _node(host, error.port)
        return _InFlight(sent.number, server, asking=not isinstance(error, MovedError))

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
                    connection_pool_class=BoundedPool,
                )
            else:
                reachable = [(one.host, one.port) for one in self.masters() if one.name not in self._away]
                self._cluster.nodes_manager.initialize(additional_startup_nodes_info=reachable)
        except (*ERRORS, RedisClusterException) as error:
            if not at_start:
                return
            cause = error.__cause__ if isinstance(error.__cause__, Exception) else error
            if isinstance(cause, AuthenticationError | RedisClusterException | ResponseError):
                raise _refused(cause) from None
            log.warning("the store's cluster does not answer (%s): documents by id cannot be had until it does", one_line(cause))

    def _try(self, server: ClusterNode) -> None:
        with suppress(*ERRORS):
            if self._client(server).cluster("INFO")["cluster_state"] == "ok":  # it must first learn of the others
                self._away.discard(server.name)
                log.warning("%s of the store's cluster answers again", server.name)


def _node(host: str, port: int) -> ClusterNode:
    return ClusterNode(host, port)  # type: ignore[no-untyped-call]


def _by_server(sent: Sequence[_InFlight]) -> list[list[_InFlight]]:
    """The commands by server, each part in the order of their numbers."""
    ordered = sorted(sent, key=lambda one: (one.server.name, one.number))
    return [list(part) for _, part in groupby(ordered, key=lambda one: one.server.name)]


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


def _refused(error: Exception) -> StoreUnavailableError:
    if isinstance(error, AuthenticationError):
        return StoreUnavailableError(f"Redis refuses the store's user and password: {one_line(error)}")
    return StoreUnavailableError(
        f"the store's URL names a server that is of no Redis Cluster ({one_line(error)}): give redis:// for one server alone"
    )
