"""A connection to a client, with limits: on the bytes before a request is admitted, on the time, and on the number of connections.

Only here can a head be limited, since the application is called when the head is complete. uvicorn's protocol on httptools has no
limits.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

import httptools
import orjson
import uvicorn
from starlette.types import ASGIApp
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from keyblock.ranking.warnings import LONGEST_SHOWN
from service.errors import RequestError
from service.http.dialects import NATIVE
from service.settings import Settings
from service.telemetry.metrics import Metrics

HEAD_BYTES = 32 * 2**10  # of a request line with its headers; also of the overhead of a body: sizes of chunks, trailers
MOST_HEADERS = 128
SMALL_CHUNK, MOST_SMALL_CHUNKS = 16, 1000  # bytes; a chunk costs the event loop as much time as a kilobyte of a larger one
BODY_HEADERS = (b"content-length", b"transfer-encoding")
STEADY_BYTES = 2**16  # of a body: a client that has sent as many again is the last that has to make room
MOST_PIPELINED = 8  # requests that may wait on a connection behind the one in hand
LINGER_SECONDS, LINGER_BYTES = 2.0, 2**20  # read on after a refusal: closing with unread bytes resets the connection and loses it


class Port(uvicorn.Config):
    """A port for clients: uvicorn's configuration, and the limits of its connections.

    Args:
        app: answers the requests.
        settings: seconds that heads, answers and idle connections may take.
        metrics: counts connections.
        name: of the port in the metrics.
        max_connections: connections that may be open.
        arguments: of uvicorn.Config.

    Attributes:
        waiting: connections that wait for their client, without a request or in the midst of a body: the longest first.
    """

    def __init__(
        self, app: ASGIApp, settings: Settings, metrics: Metrics, name: str, max_connections: int, **arguments: Any
    ) -> None:
        times: dict[str, Any] = {
            "timeout_graceful_shutdown": settings.shutdown_seconds,
            "timeout_keep_alive": settings.keep_alive_seconds,
        }
        quiet: dict[str, Any] = {"log_config": None, "access_log": False}
        super().__init__(app, http=Connection, ws="none", **times, **quiet, **arguments)
        self.head_seconds, self.answer_seconds = settings.head_seconds, settings.answer_seconds
        self.max_connections = max_connections
        self.waiting: OrderedDict[Connection, None] = OrderedDict()
        self._metrics, self._name = metrics, name

    def make_room(self) -> None:
        """Close the connection that has waited longest for its client; if the service works for all others, refuse the newest."""
        oldest, _ = self.waiting.popitem(last=False)
        if self.waiting:
            oldest.drop("crowded")
        else:
            problem = (
                f"{self.max_connections} connections are open and busy, which is the limit: try again later, or another replica"
            )
            oldest.refuse(RequestError(503, problem, retry_after=1), "crowded")

    def count(self, n_open: int) -> None:
        """Report the number of open connections."""
        self._metrics.set("connections", n_open, port=self._name)

    def closed(self, why: str) -> None:
        """Count a connection that the service closes."""
        self._metrics.add("closed", why=why)


class Timer:
    """Calls a function later, unless it is stopped before."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._handle: asyncio.TimerHandle | None = None

    def start(self, seconds: float, call: Callable[[], None]) -> None:
        """Start the timer, unless it runs."""
        if self._handle is None:
            self._handle = self._loop.call_later(seconds, call)

    def stop(self) -> None:
        """Stop the timer if it runs."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class Connection(HttpToolsProtocol):
    """uvicorn's protocol on httptools, with limits.

    A client must complete a head within `head_seconds`, and read an answer within `answer_seconds`. The methods that the parser
    calls (`on_...`) raise RequestError if a request exceeds a limit.
    """

    def __init__(
        self, config: Port, server_state: ServerState, app_state: dict[str, Any], _loop: asyncio.AbstractEventLoop | None = None
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._port = config
        self._overhead = 0  # bytes received since the last head or piece of a body was complete
        self._in_head = True
        self._head_bytes = self._body_bytes = self._chunks = 0  # of the current request
        self._refused = False
        self._in_hand: RequestResponseCycle | None = None
        self._head_timer, self._answer_timer = Timer(self.loop), Timer(self.loop)

    @property
    def _between_requests(self) -> bool:
        """Whether no request is being answered."""
        return self.cycle is None or self.cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # uvicorn's is of this type too
        """Wait for a head, and make room if there are too many connections."""
        super().connection_made(transport)
        self._note_wait()
        self._await_head()
        self._port.count(len(self.connections))
        if len(self.connections) > self._port.max_connections:
            self._port.make_room()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._give_up()
        self._unset_keepalive_if_required()
        self._head_timer.stop()
        self._answer_timer.stop()
        self._port.waiting.pop(self, None)
        self._port.count(len(self.connections))

    def data_received(self, data: bytes) -> None:
        """Parse the data, and refuse it if it is malformed or too much."""
        if self._refused:
            self._linger(len(data))
            return
        self._unset_keepalive_if_required()
        if self._between_requests:
            self._await_head()
        self._overhead += len(data)
        try:
            self.parser.feed_data(data)
            if self._overhead > HEAD_BYTES:
                raise too_large() if self._in_head else malformed(f"more than {HEAD_BYTES} bytes of a body are sizes of chunks")
        except httptools.HttpParserUpgrade as upgrade:  # no other protocol is offered: the data that follows is HTTP/1.1 too
            self.data_received(data[upgrade.args[0] :])
        except (httptools.HttpParserError, RequestError) as error:
            problem = error if isinstance(error, RequestError) else error.__context__ or error  # raised by one of the methods below
            if not isinstance(problem, RequestError):
                problem = malformed(f"this is no HTTP request: {str(problem)[:100]}")
            self.refuse(problem, "large_head" if problem.status == 431 else "malformed")

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = self._body_bytes = self._chunks = 0

    def on_url(self, url: bytes) -> None:
        """A piece of the URL."""
        self._count_head(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """A header; after a body it is a trailer, which nobody reads."""
        self._count_head(len(name) + len(value))
        if len(self.headers) >= MOST_HEADERS:
            raise too_large(f"{MOST_HEADERS} headers")
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Hand the request to the application."""
        self._in_head, self._overhead = False, 0
        check_framing(self.parser.get_http_version(), self.headers)
        if len(self.pipeline) >= MOST_PIPELINED:
            raise malformed(f"more than {MOST_PIPELINED} requests wait on this connection: read their answers first")
        if self.parser.should_upgrade() and any(name in BODY_HEADERS and value != b"0" for name, value in self.headers):
            raise malformed("a request with a body asks for another protocol: leave out the header Upgrade")  # the parser skips it
        if self._between_requests and not self.transport.get_write_buffer_size():
            self._answer_timer.stop()
        super().on_headers_complete()
        if 0 < len(self.pipeline) < MOST_PIPELINED and sum(len(one.body) for one, _ in self.pipeline) <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()  # uvicorn reads no more, and then nobody sees that the client has gone
        self._head_timer.stop()
        self._note_wait()

    def on_chunk_header(self) -> None:
        """A chunk of the body begins."""
        self._chunks += 1
        if self._chunks > MOST_SMALL_CHUNKS + self._body_bytes // SMALL_CHUNK:
            raise malformed(f"the body comes in {self._chunks} chunks of {self._body_bytes} bytes together: send larger ones")

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        before = self._body_bytes
        self._body_bytes += len(body)
        self._overhead = 0
        super().on_body(body)
        if before // STEADY_BYTES < self._body_bytes // STEADY_BYTES:
            self._note_wait()

    def on_message_complete(self) -> None:
        """The body is complete."""
        self._overhead = 0
        super().on_message_complete()
        self._note_wait()

    def on_response_complete(self) -> None:
        """Note that the whole answer is handed to the transport; the next request may wait already, or come later."""
        self._answer_timer.stop()
        if self.transport.is_closing():
            self._await_reader()  # closes the connection once the client has read
        super().on_response_complete()
        self._note_wait()

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, once the client has read everything that was sent."""
        if self.transport.get_write_buffer_size():
            self._await_reader()
        else:
            super().timeout_keep_alive_handler()

    def pause_writing(self) -> None:
        """Wait for a client that reads more slowly than data is sent."""
        super().pause_writing()
        self._await_reader()

    def drop(self, why: str) -> None:
        """Close the connection now, whatever is left to send."""
        if not self._refused:
            self._port.closed(why)
        self.transport.abort()

    def refuse(self, problem: RequestError, why: str) -> None:
        """Answer with an error and close. If another answer is on its way, close at once."""
        if self.pipeline or (not self._between_requests and self.cycle.response_started):
            self.drop(why)
            return
        self._refused = True
        self._give_up()
        self._port.closed(why)
        self._port.waiting[self] = None
        body = orjson.dumps(NATIVE.error(problem))
        headers = [*self.server_state.default_headers, (b"content-type", b"application/json"), (b"connection", b"close")]
        headers += [(b"content-length", b"%d" % len(body)), *([(b"retry-after", b"1")] if problem.retry_after else [])]
        lines = b"".join(b"%b: %b\r\n" % header for header in headers)
        self.transport.write(STATUS_LINE[problem.status] + lines + b"\r\n" + body)
        self.transport.write_eof()
        self._overhead = 0
        self._head_timer.stop()
        self._head_timer.start(LINGER_SECONDS, self.transport.abort)

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        """Answer a request, which is not the newest of its connection if others wait behind it."""
        self._in_hand = cycle
        super()._start_asgi_task(cycle, app)

    def _give_up(self) -> None:
        """Tell the request in hand that nobody waits for its answer; uvicorn only knows the newest of the connection."""
        if self._in_hand is not None and not self._in_hand.response_complete:
            self._in_hand.disconnected = True
            self._in_hand.message_event.set()

    def _note_wait(self) -> None:
        """Note whether the connection waits for its client from now on."""
        if self._between_requests or (self.cycle.more_body and not self.pipeline):
            self._port.waiting[self] = None
            self._port.waiting.move_to_end(self)
        else:
            self._port.waiting.pop(self, None)

    def _count_head(self, n_bytes: int) -> None:
        self._head_bytes += n_bytes
        if self._head_bytes > HEAD_BYTES:
            raise too_large()

    def _linger(self, n_bytes: int) -> None:
        self._overhead += n_bytes
        if self._overhead > LINGER_BYTES:
            self.transport.abort()

    def _await_head(self) -> None:
        self._head_timer.start(self._port.head_seconds, self._head_is_late)

    def _head_is_late(self) -> None:
        if not self._overhead:  # the client sent nothing, or only the rest of the body of an answered request
            self.drop("late_head")
        else:
            problem = f"the request's head was not complete after {self._port.head_seconds} s: send it faster"
            self.refuse(RequestError(408, problem), "late_head")

    def _await_reader(self) -> None:
        self._answer_timer.start(self._port.answer_seconds, self._answer_is_unread)

    def _answer_is_unread(self) -> None:
        if self._between_requests and not self.transport.get_write_buffer_size():
            self.transport.close()
        else:
            self.drop("unread")


def check_framing(version: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Check what decides where a request ends and whom it is for, so that a proxy in front cannot understand it differently.

    Args:
        version: of HTTP, as in "1.1".
        headers: their names in lower case.

    Raises RequestError 400, 501 for a transfer coding that is not known here, or 505 for another version.
    """
    if version not in ("1.0", "1.1"):
        raise malformed(f"HTTP/{version} is not spoken here: send HTTP/1.1", 505)
    n_hosts = sum(name == b"host" for name, _ in headers)
    if n_hosts > 1 or (n_hosts == 0 and version == "1.1"):
        raise malformed(f"the request has {n_hosts} Host headers: send one")
    codings = b",".join(value for name, value in headers if name == b"transfer-encoding").strip().lower()
    if codings and version == "1.0":
        raise malformed("HTTP/1.0 has no transfer-encoding: send HTTP/1.1")
    if codings not in (b"", b"chunked"):
        shown = codings[:LONGEST_SHOWN].decode("latin-1")
        raise malformed(f"transfer-encoding {shown!r} is not supported: send chunked, or a content-length", 501)


def too_large(most: str = f"{HEAD_BYTES} bytes") -> RequestError:
    """The error for a head that exceeds a limit."""
    return RequestError(431, f"the head of the request has more than {most}: send less in its URL and headers")


def malformed(problem: str, status: int = 400) -> RequestError:
    """The error for data that is no HTTP request, or one that no real client sends."""
    return RequestError(status, problem, kind="invalid_http")
