"""The ports: the one that clients ask, and beside it, where it is asked for, one for operators."""

import asyncio
import socket
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import uvicorn
from fastapi import FastAPI
from starlette.types import ASGIApp

from service.settings import Settings


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
        operators: what they ask, and the socket they ask it at.
    """

    def __init__(self, config: uvicorn.Config, operators: tuple[uvicorn.Config, socket.socket] | None = None) -> None:
        super().__init__(config)
        self._operators = operators
        self._beside: Beside | None = None
        self._task: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start both."""
        await super().startup(sockets)
        if self._operators is not None:
            config, listening = self._operators
            self._beside = Beside(config)
            self._task = asyncio.create_task(self._beside.serve(sockets=[listening]))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop both, the operators' last."""
        await super().shutdown(sockets)
        if self._beside is not None and self._task is not None:
            self._beside.should_exit, self._beside.force_exit = True, self.force_exit
            await self._task


def serve(settings: Settings, app: FastAPI, operators: tuple[FastAPI, socket.socket] | None = None) -> bool:
    """Serve until SIGTERM or SIGINT; whether it could be started.

    Args:
        settings: addresses and ports.
        app: what clients ask; has a lifespan.
        operators: what is asked at the admin port, without a lifespan of its own, and its socket.
    """
    beside = None if operators is None else (_config(operators[0], settings, lifespan="off"), operators[1])
    server = Main(_config(app, settings, host=settings.host, port=settings.port), beside)
    with suppress(KeyboardInterrupt):  # raised again once it has stopped
        server.run()
    return server.started


def bind(host: str, port: int) -> socket.socket:
    """A socket at this address, which does not listen yet. Raises ListenError."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, port))
    except OSError as error:
        bound.close()
        raise ListenError(
            f"cannot listen on {host}, port {port} ({error.strerror}): give another --admin-host or --admin-port"
        ) from None
    return bound


def _config(app: ASGIApp, settings: Settings, **more: object) -> uvicorn.Config:
    wait = settings.shutdown_seconds
    return uvicorn.Config(app, log_config=None, access_log=False, timeout_graceful_shutdown=wait, **more)  # type: ignore[arg-type]
