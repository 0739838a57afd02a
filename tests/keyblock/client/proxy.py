"""A proxy in front of the real service that fails as a test tells it to: busy, silent, slow, broken, cut short."""

import http.client
import socket
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self

Fault = Callable[[BaseHTTPRequestHandler], None]
DRIP = 0.02  # seconds between two bytes


@dataclass
class Seen:
    """A request as it came."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float = field(default_factory=time.monotonic)


class Proxy:
    """Answers with the faults in `faults`, first things first, then as the service does; remembers what was asked in `seen`."""

    def __init__(self, port: int) -> None:
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.over = threading.Event()
        self._port = port
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def any_method(self) -> None:
                self.body = self.rfile.read(int(self.headers.get("content-length", 0)))
                headers = {name.lower(): value for name, value in self.headers.items()}
                proxy.seen.append(Seen(self.command, self.path, headers, self.body))
                self.over = proxy.over
                proxy.act(self)

            do_GET = do_PUT = do_POST = do_DELETE = any_method  # noqa: N815

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.01})

    def act(self, handler: Any) -> None:
        """Answer a request."""
        if self.faults:
            self.faults.pop(0)(handler)
        else:
            forward(handler, self._port)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.over.set()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def forward(handler: Any, port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request(handler.command, handler.path, handler.body or None, dict(handler.headers.items()))
    response = connection.getresponse()
    reply(handler, response.status, response.read(), dict(response.getheaders()))
    connection.close()


def reply(handler: BaseHTTPRequestHandler, status: int, body: bytes, headers: dict[str, str]) -> None:
    handler.send_response_only(status)
    for name, value in ({name.lower(): value for name, value in headers.items()} | {"content-length": str(len(body))}).items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(body)


def says(status: int, body: bytes = b'{"message": "told so"}', **headers: str) -> Fault:
    """An answer."""
    return lambda handler: reply(handler, status, body, {name.replace("_", "-"): value for name, value in headers.items()})


def silent(handler: Any) -> None:
    """Reads the request and says nothing."""
    handler.over.wait(30)
    handler.close_connection = True


def broken(handler: BaseHTTPRequestHandler) -> None:
    """Breaks the connection."""
    handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    handler.connection.close()
    handler.close_connection = True


def closed(handler: BaseHTTPRequestHandler) -> None:
    """Closes the connection without a word."""
    handler.close_connection = True


def cut(handler: BaseHTTPRequestHandler) -> None:
    """Announces more than it sends."""
    handler.send_response_only(200)
    handler.send_header("content-length", "1000")
    handler.end_headers()
    handler.wfile.write(b'{"id"')
    handler.close_connection = True


def dripping(handler: Any) -> None:
    """Sends its answer a byte at a time, for ever."""
    handler.send_response_only(200)
    handler.send_header("content-length", "100000")
    handler.end_headers()
    try:
        while not handler.over.wait(DRIP):
            handler.wfile.write(b" ")
            handler.wfile.flush()
    except OSError:
        pass
    handler.close_connection = True


def half(handler: Any) -> None:
    """Sends the beginning of its answer and stops."""
    handler.send_response_only(200)
    handler.send_header("content-length", "100000")
    handler.end_headers()
    handler.wfile.write(b" ")
    silent(handler)
