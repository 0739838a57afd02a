"""An HTTP proxy in front of a reranker. It answers a set number of requests with 429, and forwards all others."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self

import httpx

from benchmarks.event_loop import free_port

SECONDS = 120  # timeout for the reranker
RETRY_AFTER = "1"  # seconds


class BusyProxy:
    """Listens while the `with` block runs.

    Args:
        upstream: the URL that requests go to.

    Attributes:
        url: the proxy's own URL.
        busy: how many of the next requests are answered with 429 and Retry-After.
    """

    def __init__(self, upstream: str) -> None:
        self.busy = 0
        port = free_port()
        self.url = f"http://127.0.0.1:{port}/rerank"
        self._client = httpx.Client(timeout=SECONDS)
        self._server = ThreadingHTTPServer(("127.0.0.1", port), _handler(self, upstream, self._client))
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._client.close()


def _handler(proxy: BusyProxy, upstream: str, client: httpx.Client) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if proxy.busy > 0:
                proxy.busy -= 1
                self._send(429, b"", {"Retry-After": RETRY_AFTER})
                return
            try:
                answer = client.post(upstream, content=body, headers={"content-type": "application/json"})
            except httpx.TransportError:  # as proxies answer when the upstream is down
                self._send(502, b"", {})
                return
            self._send(answer.status_code, answer.content, {"Content-Type": answer.headers.get("content-type", "")})

        def _send(self, status: int, content: bytes, headers: dict[str, str]) -> None:
            try:
                self.send_response(status)
                for name, value in ({"Content-Length": str(len(content))} | headers).items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)
            except OSError:  # the client has hung up
                self.close_connection = True

        def log_message(self, *_: object) -> None:
            return

    return Handler
