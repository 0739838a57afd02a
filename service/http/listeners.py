"""The ports: the one that clients ask, and beside it, where it is asked for, one for operators."""

import asyncio
import logging
import re
import resource
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from ipaddress import ip_address
from itertools import product
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE

from service.http.connection import Port
from service.settings import Settings
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
ADMIN_CONNECTIONS = 128  # at the admin port
MOST_BACKLOG = 2048  # connections that wait to be accepted; all of them may be accepted before one is closed to make room
CLAIM = "keyblock-serve"  # the first word of the name that claims a port
CLAIMS = Path("/proc/net/unix")  # the names that all processes have
SPREADS = sys.platform == "linux"  # SO_REUSEPORT spreads connections there; elsewhere the last one that listens may get all


class ListenError(Exception):
    """An address that cannot be listened on; one clear line."""


class Beside(uvicorn.Server):
    """A server that leaves signals to another."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class Main(uvicorn.Server):
    """The server of clients; one for operators is there from when it is ready to when its last request is answered.

    Args:
        config: its own.
        operators: what they ask, and the sockets they ask it at.
    """

    def __init__(self, config: uvicorn.Config, operators: tuple[uvicorn.Config, list[socket.socket]] | None = None) -> None:
        super().__init__(config)
        self._operators = operators
        self._beside: Beside | None = None
        self._task: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start both. Exits as uvicorn does where another process has begun to listen since the sockets were bound."""
        try:
            for one in sockets or []:
                one.listen(self.config.backlog)  # uvloop would not say that it cannot
        except OSError as error:
            log.error("cannot listen on %s, port %d (%s)", self.config.host, self.config.port, error.strerror)
            sys.exit(STARTUP_FAILURE)
        await super().startup(sockets)
        self._log_started_message(sockets or [])
        if self._operators is not None:
            config, listening = self._operators
            self._beside = Beside(config)
            self._task = asyncio.create_task(self._beside.serve(sockets=listening))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop both, the operators' last."""
        await super().shutdown(sockets)
        if self._beside is not None and self._task is not None:
            self._beside.should_exit, self._beside.force_exit = True, self.force_exit
            await self._task


Listening = tuple[FastAPI, list[socket.socket]]
"""An application, and the sockets that it is asked at."""


def serve(settings: Settings, metrics: Metrics, clients: Listening, operators: Listening | None = None) -> bool:
    """Serve until SIGTERM or SIGINT, see `server`; whether it could be started."""
    serving = server(settings, metrics, clients, operators)
    with suppress(KeyboardInterrupt):  # raised again once it has stopped
        serving.run(sockets=clients[1])
    return serving.started


def server(settings: Settings, metrics: Metrics, clients: Listening, operators: Listening | None = None) -> Main:
    """What serves, to be run with the sockets of clients.

    Args:
        settings: addresses, ports and limits.
        metrics: counts connections.
        clients: what they ask; has a lifespan.
        operators: what is asked at the admin port, without a lifespan of its own.
    """
    files = allow_files(2 * settings.max_connections)
    most = min(settings.max_connections, files // 2)
    if most < settings.max_connections:
        warning = "max_connections is %d instead of %d, since %d files may be open: raise their hard limit (ulimit -Hn) to %d"
        log.warning(warning, most, settings.max_connections, files, 2 * settings.max_connections)
    backlog = min(MOST_BACKLOG, files // 4)
    beside = None
    if operators is not None:
        port = Port(operators[0], settings, metrics, "admin", min(ADMIN_CONNECTIONS, most), lifespan="off", backlog=backlog)
        beside = port, operators[1]
    main = Port(clients[0], settings, metrics, "main", most, host=settings.host, port=settings.port, backlog=backlog)
    return Main(main, beside)


def allow_files(wanted: int) -> int:
    """Raise the limit of open files to as many, as far as the system allows it; the limit then."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return wanted if soft == resource.RLIM_INFINITY else soft
    with suppress(ValueError, OSError):  # macOS has a limit beside the hard one
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return soft


def bind(host: str, port: int, flags: str = "--host or --port") -> list[socket.socket]:
    """Sockets at all addresses of this host, which do not listen yet.

    Args:
        host: a name or an address; empty: every address of this machine.
        port: 0: any that is free.
        flags: that name another.

    Raises ListenError.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        addresses = dict.fromkeys((family, address) for family, _, _, _, address in found)  # a file of hosts may name one twice
        return _bound(list(addresses))
    except (OSError, UnicodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "no host can have such a name"  # "..", say
        raise ListenError(f"cannot listen on {host}, port {port} ({problem}): give another {flags}") from None


def overlap(some: Sequence[socket.socket], others: Sequence[socket.socket]) -> bool:
    """Whether both would listen at one address: the system says so only once the first does."""
    pairs = product(*([one.getsockname()[:2] for one in sockets] for sockets in (some, others)))
    return any(port == its_port and _meet(host, its_host) for (host, port), (its_host, its_port) in pairs)


@contextmanager
def claimed_ports(bound: Iterable[socket.socket]) -> Iterator[None]:
    """Hold the addresses of these while they are `spread`: a second service that asks for them, or for all addresses, is refused.

    Until somebody listens at an address the system lets others bind it, and those that spread it too would share it from then on.
    Raises ListenError.
    """
    with ExitStack() as held:
        addresses = [one.getsockname()[:2] for one in bound] if SPREADS else []
        for host, port in addresses:
            claim = held.enter_context(socket.socket(socket.AF_UNIX))
            try:
                claim.bind(f"\0{CLAIM} {host} {port}")  # it goes with its process, and is of the network that the port is of
            except OSError as error:
                raise ListenError(f"cannot listen on {host}, port {port} ({error.strerror}): give another port") from None
        for host, port in addresses:  # after all are claimed: of two that start at once, one at least sees the other
            for taken in _claims(port).difference(one for one, _ in addresses):
                if _meet(host, taken):
                    problem = f"another {CLAIM} has {taken}, port {port}, and both would get some of the connections"
                    raise ListenError(f"cannot listen on {host}, port {port} ({problem}): give another port")
        yield


def _claims(port: int) -> set[str]:
    """The addresses at which a service has claimed this port; none where the system does not tell."""
    with suppress(OSError):
        return set(re.findall(rf"@{CLAIM} (\S+) {port}$", CLAIMS.read_text(encoding="utf-8", errors="replace"), re.MULTILINE))
    return set()


def _meet(host: str, other: str) -> bool:
    """Whether what listens at one of these addresses is reached at the other."""
    try:
        one, its = ip_address(host), ip_address(other)
    except ValueError:  # a claim may be anything: whoever likes makes a socket of that name
        return False
    return one.version == its.version and (one == its or one.is_unspecified or its.is_unspecified)


def spread(bound: list[socket.socket], copies: int) -> list[list[socket.socket]]:
    """So many sets of sockets at the addresses of these, which are closed: the system spreads connections over those that listen.

    Who binds them first finds an address taken, where only who shares it would not. Where the system spreads nothing, all copies
    are the same sockets. Raises ListenError where another process was quicker.
    """
    if not SPREADS:
        return [bound] * copies
    addresses = [(one.family, one.getsockname()) for one in bound]
    for one in bound:
        one.close()
    try:
        return [_bound(addresses, shared=True) for _ in range(copies)]
    except OSError as error:
        raise ListenError(f"cannot listen on {addresses[0][1]} ({error.strerror}): give another port") from None


def _bound(addresses: Sequence[tuple[int, Any]], *, shared: bool = False) -> list[socket.socket]:
    """A socket for each family and address. Raises OSError: then there is none."""
    bound: list[socket.socket] = []
    try:
        for family, address in addresses:
            bound.append(one := socket.socket(family, socket.SOCK_STREAM))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if shared:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
    except OSError:
        for one in bound:
            one.close()
        raise
    return bound
