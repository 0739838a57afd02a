"""The map of a Redis Cluster: the server of each slot, and the servers that do not answer; a thread of its own keeps it up to date.

A server that failed once gets no more commands until this thread has reached it again. So an outage costs one timeout for the
requests that meet it first, and nothing for those after them.
"""

import logging
import random
import threading
from collections.abc import Iterable
from contextlib import suppress
from typing import Any, NamedTuple

import redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS, key_slot
from redis.exceptions import AskError, AuthenticationError, ConnectionError, ResponseError

from service.store.base import StoreUnavailableError
from service.store.redis_client import ERRORS, client_of, one_line, options_of

log = logging.getLogger(__name__)
MARK = "+cluster://"
PORT = 6379
REFRESH_SECONDS = 10.0  # between two reads of the map if all is well: a new server is noticed after this time
RETRY_SECONDS = 0.25  # between two tries while a server does not answer
WRONG_URL = (
    "the store's URL is not one of a Redis Cluster: give redis+cluster://[user:password@]host:port[,host:port]..., without a "
    "database, with special characters as %XX"
)


class Address(NamedTuple):
    """The address of a server."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Server:
    """A server of a cluster.

    Args:
        address: of the server.
        options: of the connections to it.

    Attributes:
        client: has time limits; several threads may use it.
        away: whether it did not answer its last command.
    """

    def __init__(self, address: Address, options: dict[str, Any]) -> None:
        self.address = address
        self.client: redis.Redis = client_of({**options, **address._asdict()})
        self.away = False


class ClusterMap:
    """The servers of a cluster by slot, as any of the named servers gives them. A cluster that does not answer is no error here.

    Args:
        url: ``redis+cluster://[user:password@]host:port[,host:port]...``, ``rediss+cluster://`` for TLS.

    Raises StoreUnavailableError, one line, if the URL is invalid, the password is refused, or the server belongs to no cluster.
    """

    def __init__(self, url: str) -> None:
        self._seeds, self._options = parsed(url)
        self._lock = threading.Lock()
        self._servers: dict[Address, Server] = {}
        self._owners: list[Server | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._wake = threading.Event()
        self._closed = threading.Event()
        self._refresh(at_start=True)
        if not self.masters():
            self._wake.set()
        self._watcher = threading.Thread(target=self._watch, name="store-watch", daemon=True)
        self._watcher.start()

    def owner(self, key: bytes) -> Server | None:
        """The server that has the key's slot; None while no server has given a map."""
        return self._owners[key_slot(key)]

    def masters(self) -> list[Server]:
        """The servers that have slots."""
        return list(dict.fromkeys(one for one in self._owners if one is not None))

    def redirected(self, error: AskError, by: Server) -> Server:
        """The server that an error of server `by` redirects to; it may be a new one."""
        return self._server(Address(error.host or by.address.host, error.port))

    def moved(self, slot: int, server: Server) -> None:
        """Note that a slot has moved to this server, and read the map again soon."""
        self._owners[slot] = server
        self._wake.set()

    def failed(self, server: Server, error: Exception) -> None:
        """Note that a server did not answer: it gets no commands until it answers again."""
        if not server.away:
            server.away = True
            log.warning("%s of the store's cluster does not answer: %s", server.address, one_line(error))
        self._wake.set()

    def close(self) -> None:
        """End the thread and the connections."""
        self._closed.set()
        self._wake.set()
        self._watcher.join()
        for server in self._servers.values():
            server.client.close()

    def _server(self, address: Address) -> Server:
        with self._lock:
            if address not in self._servers:
                self._servers[address] = Server(address, self._options)
            return self._servers[address]

    def _watch(self) -> None:
        while True:
            self._wake.wait(REFRESH_SECONDS)
            self._wake.clear()
            if self._closed.is_set():
                return
            self._refresh()
            for server in filter(lambda one: one.away, self.masters()):
                self._try(server)
            if any(one.away for one in self.masters()) or not self.masters():
                self._wake.set()
                self._closed.wait(RETRY_SECONDS)

    def _refresh(self, *, at_start: bool = False) -> None:
        """Read the map from the first server that has one. `at_start`, raises StoreUnavailableError if a retry cannot help."""
        problem: Exception = ConnectionError("no server has slots")
        for server in self._candidates():
            try:
                if ranges := server.client.execute_command("CLUSTER SLOTS"):  # type: ignore[no-untyped-call]
                    self._set_owners(ranges, server)
                    return
            except ERRORS as error:
                if at_start and isinstance(error, AuthenticationError | ResponseError):
                    raise _refused(error) from None
                problem = error
        if at_start:
            log.warning("the store's cluster does not answer (%s): documents by id cannot be had until it does", one_line(problem))

    def _candidates(self) -> list[Server]:
        """The servers to read the map from: reachable ones in random order, as one may have an old map; then those of the URL."""
        masters = self.masters()
        random.shuffle(masters)
        known = [*masters, *map(self._server, self._seeds)]
        return sorted(dict.fromkeys(known), key=lambda one: one.away)

    def _set_owners(self, ranges: Iterable[Any], source: Server) -> None:
        owners = list(self._owners)  # a slot without a server stays with its last one, and is away with it
        for start, end, (host, port, *_), *_replicas in ranges:
            name = host.decode() if host else source.address.host  # empty: the server that gave the map
            owners[start : end + 1] = [self._server(Address(name, int(port)))] * (end + 1 - start)
        self._owners = owners
        used = {*(one.address for one in self.masters()), *self._seeds}
        with self._lock:  # drop unused servers: addresses come and go with pods
            self._servers = {address: server for address, server in self._servers.items() if address in used}

    def _try(self, server: Server) -> None:
        with suppress(*ERRORS):
            if server.client.cluster("INFO")["cluster_state"] == "ok":  # a server that comes back must first learn of the others
                server.away = False
                log.warning("%s of the store's cluster answers again", server.address)


def parsed(url: str) -> tuple[list[Address], dict[str, Any]]:
    """The servers in a URL, and the options of connections to them. Raises StoreUnavailableError, without the password."""
    scheme, _, rest = url.partition(MARK)
    end = min((rest.find(mark) for mark in "/?" if mark in rest), default=len(rest))
    login, at, hosts = rest[:end].rpartition("@")
    try:
        each = [options_of(f"{scheme}://{login}{at}{host}{rest[end:]}") for host in hosts.split(",")]
        addresses = [Address(one.pop("host"), one.pop("port", PORT)) for one in each]
    except (ValueError, KeyError):
        raise StoreUnavailableError(WRONG_URL) from None
    if each[0].get("db"):
        raise StoreUnavailableError(WRONG_URL)
    return addresses, each[0]


def _refused(error: Exception) -> StoreUnavailableError:
    if isinstance(error, AuthenticationError):
        return StoreUnavailableError(f"Redis refuses the store's user and password: {one_line(error)}")
    return StoreUnavailableError(
        f"the store's URL names a server that is of no Redis Cluster ({one_line(error)}): give redis:// for one server alone"
    )
