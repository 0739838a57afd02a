"""The ports: one for clients and, if wanted, one for operators."""

import asyncio
import logging
import resource
import socket
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ipaddress import ip_address
from typing import Any

import uvicorn
from fastapi import FastAPI
from uvicorn.config import STARTUP_FAILURE

from service.http.connection import Port
from service.settings import Settings
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
ADMIN_CONNECTIONS = 128  # at the operators' port
MOST_BACKLOG = 2048  # connections that may wait to be accepted; all of them may be accepted before one is closed to make room


class ListenError(Exception):
    """The service cannot listen at an address; the message is one clear line."""


class OperatorServer(uvicorn.Server):
    """The server of operators; it leaves signals to the server of clients."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture none."""
        yield


class Main(uvicorn.Server):
    """The server of clients. It starts the server of operators once it is ready, and stops it after its last answer.

    Args:
        config: of this server.
        operators: the operators' server, if they have their own port, and its sockets.
    """

    def __init__(self, config: uvicorn.Config, operators: tuple[OperatorServer, list[socket.socket]] | None = None) -> None:
        super().__init__(config)
        self._operators = operators
        self._serving_operators: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start both servers. Exits as uvicorn does if another process has begun to listen since the sockets were bound."""
        try:
            for one in sockets or []:
                one.listen(self.config.backlog)  # here, since uvloop would not report a failure
        except OSError as error:
            log.error("cannot listen on %s, port %d (%s)", self.config.host, self.config.port, error.strerror)
            sys.exit(STARTUP_FAILURE)
        await super().startup(sockets)
        self._log_started_message(sockets or [])
        if self._operators is not None:
            server, listening = self._operators
            host, port = listening[0].getsockname()[:2]
            log.info("operators are served at http://%s:%d", f"[{host}]" if ":" in host else host, port)
            self._serving_operators = asyncio.create_task(server.serve(sockets=listening))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop both servers, the operators' last."""
        await super().shutdown(sockets)
        if self._operators is not None and self._serving_operators is not None:
            server, _ = self._operators
            server.should_exit, server.force_exit = True, self.force_exit
            await self._serving_operators


Listening = tuple[FastAPI, list[socket.socket]]
"""An application and its sockets."""


def serve(settings: Settings, metrics: Metrics, clients: Listening, operators: Listening | None = None) -> bool:
    """Serve until SIGTERM or SIGINT. Returns whether the server started.

    Args:
        settings: addresses, ports and limits.
        metrics: counts connections.
        clients: application and sockets for clients; the application has a lifespan.
        operators: application and sockets of the operators' port; its lifespan is not run.
    """
    files = allow_files(2 * settings.max_connections)
    most = min(settings.max_connections, files // 2)
    if most < settings.max_connections:
        warning = "max_connections is %d instead of %d, since %d files may be open: raise their hard limit (ulimit -Hn) to %d"
        log.warning(warning, most, settings.max_connections, files, 2 * settings.max_connections)
    backlog = min(MOST_BACKLOG, files // 4)
    main = Port(clients[0], settings, metrics, "main", most, host=settings.host, port=settings.port, backlog=backlog)
    beside = None
    if operators is not None:
        port = Port(operators[0], settings, metrics, "admin", min(ADMIN_CONNECTIONS, most), lifespan="off", backlog=backlog)
        beside = OperatorServer(port), operators[1]
    server = Main(main, beside)
    with suppress(KeyboardInterrupt):  # uvicorn raises it again after the stop
        server.run(sockets=clients[1])
    return server.started


def allow_files(n_files: int) -> int:
    """Raise the limit of open files to `n_files`, as far as the system allows it. Returns the resulting limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = n_files if hard == resource.RLIM_INFINITY else min(n_files, hard)
    if soft == resource.RLIM_INFINITY or soft >= most:
        return n_files if soft == resource.RLIM_INFINITY else soft
    with suppress(ValueError, OSError):  # macOS has another limit besides the hard one
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))
        return most
    return soft


def bind(host: str, port: int, flags: str = "--host or --port") -> list[socket.socket]:
    """Bind sockets at all addresses of this host; they do not listen yet.

    Args:
        host: a name or an address; empty: every address of this machine.
        port: 0: any free port.
        flags: the command-line flags that change the address, for the message.

    Raises ListenError.
    """
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        addresses = dict.fromkeys((family, address) for family, _, _, _, address in found)  # a file of hosts may name one twice
        return _bound(list(addresses))
    except (OSError, UnicodeError) as error:
        problem = error.strerror if isinstance(error, OSError) else "no host can have such a name"  # "..", say
        raise ListenError(f"cannot listen on {host}, port {port} ({problem}): give another {flags}") from None


def are_loopback(sockets: Iterable[socket.socket]) -> bool:
    """Whether only this machine can connect to these sockets."""
    return all(ip_address(one.getsockname()[0]).is_loopback for one in sockets)


def _bound(addresses: Sequence[tuple[int, Any]]) -> list[socket.socket]:
    """A socket for each family and address. Raises OSError, after closing all of them."""
    bound: list[socket.socket] = []
    try:
        for family, address in addresses:
            bound.append(one := socket.socket(family, socket.SOCK_STREAM))
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if family == socket.AF_INET6:
                one.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            one.bind(address)
    except OSError:
        for one in bound:
            one.close()
        raise
    return bound
