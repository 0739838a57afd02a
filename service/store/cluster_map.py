"""Which server of a Redis Cluster has which slot, and which of them do not answer: asked anew by a thread beside the requests.

A server that failed once is asked nothing more until this thread has reached it again, so an outage costs the requests that meet it
first one timeout, and those after them nothing.
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
from service.store.redis_client import ERRORS, client_of, line_of, options_of

log = logging.getLogger(__name__)
MARK = "+cluster://"
PORT = 6379
LOOK_SECONDS = 10.0  # between two looks at the map, where all is well: a server that joined is counted after so long
RETRY_SECONDS = 0.25  # between two looks while a server does not answer
WRONG_URL = (
    "the store's URL is not one of a Redis Cluster: give redis+cluster://[user:password@]host:port[,host:port]..., without a "
    "database, with special characters as %XX"
)


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


class Server:
    """One of a cluster.

    Args:
        address: where it listens.
        options: of the connections to it.

    Attributes:
        client: bounded in time; it may be used from several threads.
        away: whether it did not answer when it was last asked.
    """

    def __init__(self, address: Address, options: dict[str, Any]) -> None:
        self.address = address
        self.client: redis.Redis = client_of({**options, **address._asdict()})
        self.away = False


class ClusterMap:
    """The servers of a cluster by slot, from any of those named. A cluster that does not answer is no error.

    Args:
        url: ``redis+cluster://[user:password@]host:port[,host:port]...``, ``rediss+cluster://`` for TLS.

    Raises StoreUnavailableError, one line, where the URL is none, the password is refused, or the server is of no cluster.
    """

    def __init__(self, url: str) -> None:
        self._seeds, self._options = parsed(url)
        self._lock = threading.Lock()
        self._servers: dict[Address, Server] = {}
        self._owners: list[Server | None] = [None] * REDIS_CLUSTER_HASH_SLOTS
        self._look = threading.Event()
        self._closed = threading.Event()
        self._refresh(first=True)
        if not self.masters():
            self._look.set()
        self._watcher = threading.Thread(target=self._watch, name="store-watch", daemon=True)
        self._watcher.start()

    def owner(self, key: bytes) -> Server | None:
        """The server that has the key's slot; None while no server has told."""
        return self._owners[key_slot(key)]

    def masters(self) -> list[Server]:
        """Servers that have slots."""
        return list(dict.fromkeys(one for one in self._owners if one is not None))

    def redirected(self, error: AskError, by: Server) -> Server:
        """The server that another one names in its stead, perhaps one that nobody has heard of."""
        return self._server(Address(error.host or by.address.host, error.port))

    def moved(self, slot: int, server: Server) -> None:
        """A server has said who has a slot: believe it, and look at the others soon."""
        self._owners[slot] = server
        self._look.set()

    def failed(self, server: Server, error: Exception) -> None:
        """A server did not answer: nobody asks it until it does."""
        if not server.away:
            server.away = True
            log.warning("%s of the store's cluster does not answer: %s", server.address, line_of(error))
        self._look.set()

    def close(self) -> None:
        """End the thread and the connections."""
        self._closed.set()
        self._look.set()
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
            self._look.wait(LOOK_SECONDS)
            self._look.clear()
            if self._closed.is_set():
                return
            self._refresh()
            for server in filter(lambda one: one.away, self.masters()):
                self._try(server)
            if any(one.away for one in self.masters()) or not self.masters():
                self._look.set()
                self._closed.wait(RETRY_SECONDS)

    def _refresh(self, *, first: bool = False) -> None:
        """Read the map from the first server that has one. With `first`, raises StoreUnavailableError for what no retry mends."""
        problem: Exception = ConnectionError("no server has slots")
        for server in self._to_ask():
            try:
                if ranges := server.client.execute_command("CLUSTER SLOTS"):  # type: ignore[no-untyped-call]
                    self._enter(ranges, server)
                    return
            except ERRORS as error:
                if first and isinstance(error, AuthenticationError | ResponseError):
                    raise _refused(error) from None
                problem = error
        if first:
            log.warning("the store's cluster does not answer (%s): documents by id cannot be had until it does", line_of(problem))

    def _to_ask(self) -> list[Server]:
        """Those that answered last first, in any order, as one that is cut off may have an old map; then those of the URL."""
        masters = self.masters()
        random.shuffle(masters)
        known = [*masters, *map(self._server, self._seeds)]
        return sorted(dict.fromkeys(known), key=lambda one: one.away)

    def _enter(self, ranges: Iterable[Any], told_by: Server) -> None:
        owners = list(self._owners)  # a slot that nobody has stays with who had it last, and is away with it
        for start, end, (host, port, *_), *_replicas in ranges:
            name = host.decode() if host else told_by.address.host  # none: the one that was asked
            owners[start : end + 1] = [self._server(Address(name, int(port)))] * (end + 1 - start)
        self._owners = owners
        kept = {*(one.address for one in self.masters()), *self._seeds}
        with self._lock:  # addresses come and go as pods do
            self._servers = {address: server for address, server in self._servers.items() if address in kept}

    def _try(self, server: Server) -> None:
        with suppress(*ERRORS):
            if server.client.cluster("INFO")["cluster_state"] == "ok":  # one that comes back learns of the others first
                server.away = False
                log.warning("%s of the store's cluster answers again", server.address)


def parsed(url: str) -> tuple[list[Address], dict[str, Any]]:
    """The servers that a URL names, and the options of connections to them. Raises StoreUnavailableError, without the password."""
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
        return StoreUnavailableError(f"Redis refuses the store's user and password: {line_of(error)}")
    return StoreUnavailableError(
        f"the store's URL names a server that is of no Redis Cluster ({line_of(error)}): give redis:// for one server alone"
    )
