"""Connections to a real server on a port of its own: what they may send, how long they may take, and how many there may be."""

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPResponse
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from service.http import connection
from service.http.connection import HEAD_BYTES, MOST_HEADERS, MOST_PIPELINED, MOST_SMALL_CHUNKS, STEADY_BYTES, Port
from service.http.dialects.common import PiecesResponse
from service.http.endpoint import disconnected
from service.settings import Settings
from service.telemetry.metrics import TABLE, Metrics
from tests.service.faults import PATIENCE, wait_for

ENDLESS = 3600  # seconds: longer than a test
SETTINGS = Settings(shutdown_seconds=5, keep_alive_seconds=ENDLESS)
SECONDS = 0.4  # that a head or an answer may take
LARGE = 24 * 2**20  # bytes of an answer: more than the kernel keeps for a client that does not read
GET = b"GET /echo HTTP/1.1\r\nHost: here\r\n"
LARGE_GET, SLOW_GET = b"GET /large HTTP/1.1\r\nHost: here\r\n\r\n", b"GET /slow HTTP/1.1\r\nHost: here\r\n\r\n"
CHUNKED = b"POST /echo HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"


class LeapingLoop(asyncio.SelectorEventLoop):
    """What is due in some seconds is due now, when a test says so: no test waits for it, and none is too slow for it."""

    ahead = 0.0

    def time(self) -> float:
        return super().time() + self.ahead

    def leap(self, seconds: float) -> None:
        self.ahead += seconds


class Server:
    """A small application behind a port with bounds; on a loop of a test's own, or on that of the service."""

    def __init__(self, settings: Settings, most: int, loop: LeapingLoop | None = None) -> None:
        self.metrics = Metrics()
        self.released = threading.Event()
        routes = [Route("/echo", self.echo, methods=["GET", "POST"]), Route("/large", self.large), Route("/slow", self.slow)]
        port = Port(Starlette(routes=routes), settings, self.metrics, "main", most, port=0, lifespan="off")
        self.server = uvicorn.Server(port)
        self.loop = loop
        self.thread = threading.Thread(target=self.server.run if loop is None else self._run, daemon=True)
        self.thread.start()
        wait_for(lambda: self.server.started)
        self.address = self.server.servers[0].sockets[0].getsockname()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self.loop) as runner:
            runner.run(self.server.serve())

    def leap(self) -> None:
        """By more than half of what a head or an answer may take."""
        assert self.loop is not None
        self.loop.call_soon_threadsafe(self.loop.leap, 0.6 * PATIENCE)

    async def echo(self, request: Request) -> Response:
        return PlainTextResponse(await request.body() + f"{sorted(request.headers)}".encode())

    async def large(self, _: Request) -> Response:
        return PiecesResponse([bytes([65 + n]) * 2**20 for n in range(LARGE // 2**20)])

    async def slow(self, request: Request) -> Response:
        gone = asyncio.create_task(disconnected(request))
        while not self.released.is_set() and not gone.done():
            await asyncio.sleep(0.01)
        return PlainTextResponse("done")

    def connect(self, receive_bytes: int = 0) -> socket.socket:
        """A client; one that is going to read slowly with a small buffer."""
        client = socket.socket()
        client.settimeout(PATIENCE)
        if receive_bytes:
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        client.connect(self.address)
        return client

    def ask(self, sent: bytes) -> bytes:
        """All that is answered until the service closes."""
        with self.connect() as client:
            send(client, sent)
            return read(client)

    def closed(self, why: str) -> float:
        return self.metrics.registry.get_sample_value(TABLE["closed"].name, {"why": why}) or 0.0

    @property
    def open(self) -> float:
        return self.metrics.registry.get_sample_value(TABLE["connections"].name, {"port": "main"}) or 0.0


def send(client: socket.socket, data: bytes) -> None:
    """As much as is taken."""
    try:
        client.sendall(data)
    except ConnectionError:
        return


def read(client: socket.socket) -> bytes:
    """All until it is closed."""
    received = bytearray()
    try:
        while piece := client.recv(1 << 16):
            received += piece
    except ConnectionError:
        pass
    return bytes(received)


def one_answer(client: socket.socket) -> tuple[int, bytes]:
    """Status and content of the next one, in however many pieces it comes."""
    response = HTTPResponse(client)
    response.begin()
    return response.status, response.read()


def trickle(client: socket.socket) -> None:
    """A byte now and then; raises ConnectionError when it is closed."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        client.sendall(b"x")
        time.sleep(SECONDS / 10)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def message(answer: bytes) -> str:
    said: str = json.loads(answer.partition(b"\r\n\r\n")[2])["message"]
    return said


@contextmanager
def serving(most: int = 100, loop: LeapingLoop | None = None, **seconds: float) -> Iterator[Server]:
    server = Server(SETTINGS.model_copy(update={"head_seconds": SECONDS, "answer_seconds": SECONDS, **seconds}), most, loop)
    try:
        yield server
    finally:
        server.released.set()
        server.server.should_exit = True
        server.thread.join(PATIENCE)
        assert not server.thread.is_alive()


@pytest.fixture
def leaping() -> Iterator[Server]:
    """Heads and answers may take PATIENCE, on a clock that leaps."""
    with serving(loop=LeapingLoop(), head_seconds=PATIENCE, answer_seconds=PATIENCE) as server:
        yield server


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(head_seconds=PATIENCE) as server:
        yield server


@pytest.fixture(scope="module")
def hasty() -> Iterator[Server]:
    with serving() as server:
        yield server


def test_an_idle_connection_outlives_the_keep_alive_of_a_proxy() -> None:
    """Proxies keep idle connections for 60 s; one that the service closes first is a 502 for the next request."""
    assert Settings().keep_alive_seconds > 60
    with serving(loop=LeapingLoop(), head_seconds=ENDLESS, keep_alive_seconds=PATIENCE) as server, server.connect() as client:
        for _ in range(3):
            send(client, GET + b"\r\n")
            assert one_answer(client)[0] == 200
            server.leap()
        server.leap()
        assert read(client) == b""


def headers(number: int) -> bytes:
    return b"".join(b"a%d: b\r\n" % n for n in range(number))


def test_a_head_within_its_bounds_is_read_whole(server: Server) -> None:
    value = b"x" * (HEAD_BYTES - 200)
    answer = server.ask(GET + b"Long: " + value + b"\r\nConnection: close\r\n\r\n")
    assert (status(answer), answer[-27:]) == (200, b"['connection', 'host', 'long']"[-27:])
    assert status(server.ask(GET + headers(MOST_HEADERS - 2) + b"Connection: close\r\n\r\n")) == 200


REFUSED = {
    "many headers": (GET + headers(MOST_HEADERS) + b"\r\n", 431, "more than 128 headers: send less"),
    "endless headers": (GET + b"a: b\r\n" * 200_000, 431, "more than 128 headers: send less"),
    "a value": (GET + b"Long: " + b"x" * 2 * HEAD_BYTES, 431, "more than 32768 bytes: send less"),
    "a name": (GET + b"x" * 2 * HEAD_BYTES, 431, "more than 32768 bytes: send less"),
    "a URL without end": (b"GET /" + b"x" * 2 * HEAD_BYTES, 431, "more than 32768 bytes: send less"),
    "a URL": (b"GET /" + b"x" * 2 * HEAD_BYTES + b" HTTP/1.1\r\n\r\n", 431, "more than 32768 bytes: send less"),
    "line breaks": (b"\r\n" * HEAD_BYTES, 431, "more than 32768 bytes: send less"),
    "an extension of a chunk": (CHUNKED + b"1;" + b"x" * 40 * HEAD_BYTES, 400, "sizes of chunks"),
    "trailers": (CHUNKED + b"0\r\n" + b"a: b\r\n" * HEAD_BYTES, 431, "more than 32768 bytes"),
    "small chunks": (CHUNKED + b"1\r\nx\r\n" * 2 * MOST_SMALL_CHUNKS, 400, "1067 chunks of 1066 bytes together"),
    "no chunk": (CHUNKED + b"zz\r\n", 400, "Invalid character in chunk size"),
    "nonsense": (b"nonsense\r\n\r\n", 400, "Invalid method"),
    "chunks with a length": (CHUNKED[:-2] + b"Content-Length: 3\r\n\r\n0\r\n\r\n", 400, "transfer-encoding"),
    "two lengths": (GET + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\nab", 400, "content-length"),
    "a zero in a header": (GET + b"a: b\0c\r\n\r\n", 400, "Invalid header value"),
    "a tunnel": (b"CONNECT here:80 HTTP/1.1\r\nHost: here\r\n\r\n", 400, "invalid url"),
    "HTTP/2": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "PRI"),
    # what two servers could understand differently
    "no host": (b"GET /echo HTTP/1.1\r\n\r\n", 400, "0 Host headers"),
    "two hosts": (GET + b"Host: there\r\n\r\n", 400, "2 Host headers"),
    "two hosts in HTTP/1.0": (b"GET /echo HTTP/1.0\r\nHost: here\r\nHost: here\r\n\r\n", 400, "2 Host headers"),
    "HTTP/2 in the line": (b"GET /echo HTTP/2.0\r\nHost: here\r\n\r\n", 505, "HTTP/2.0"),
    "HTTP/0.9": (b"GET /echo HTTP/0.9\r\nHost: here\r\n\r\n", 505, "HTTP/0.9"),
    "packed chunks": (CHUNKED.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n", 501, "'gzip, chunked' is not supported"),
    "packed in another line": (CHUNKED.replace(b"Tr", b"Transfer-Encoding: gzip\r\nTr") + b"0\r\n\r\n", 501, "gzip,chunked"),
    "chunks in HTTP/1.0": (CHUNKED.replace(b"1.1", b"1.0") + b"0\r\n\r\n", 400, "HTTP/1.0 has no transfer-encoding"),
}


@pytest.mark.parametrize(("sent", "expected", "problem"), REFUSED.values(), ids=REFUSED)
def test_what_is_malformed_or_too_much_is_refused_in_the_shape_of_all_errors(
    server: Server, sent: bytes, expected: int, problem: str
) -> None:
    why = "large_head" if expected == 431 else "malformed"
    before = server.closed(why)
    answer = server.ask(sent)
    assert (status(answer), problem.lower() in message(answer).lower()) == (expected, True), answer
    assert server.closed(why) == before + 1


def test_a_head_that_does_not_end_in_time_is_refused(hasty: Server) -> None:
    started = time.monotonic()
    with hasty.connect() as client:
        send(client, GET)
        while time.monotonic() < started + SECONDS / 2:
            send(client, b"a: b\r\n")
            time.sleep(SECONDS / 20)
        answer = read(client)
    assert (status(answer), time.monotonic() - started >= SECONDS) == (408, True)
    assert "not complete after 0.4 s" in message(answer)


def test_a_connection_on_which_nothing_is_sent_is_closed(hasty: Server) -> None:
    before = hasty.closed("late_head")
    assert hasty.ask(b"") == b""
    assert hasty.closed("late_head") == before + 1


def test_the_rest_of_a_body_whose_request_is_answered_is_not_waited_for(hasty: Server) -> None:
    with hasty.connect() as client:
        send(client, b"GET /none HTTP/1.1\r\nHost: here\r\nContent-Length: 1000000\r\n\r\n")
        with pytest.raises(ConnectionError):
            trickle(client)


def test_chunks_are_put_together_and_trailers_left_out(server: Server) -> None:
    chunks = b"1\r\nx\r\n" * MOST_SMALL_CHUNKS + b"%x\r\n%b\r\n" % (100_000, b"y" * 100_000) + b"5;why=not\r\nworld\r\n"
    with server.connect() as client:
        client.sendall(CHUNKED + chunks + b"0\r\nAuthorization: forged\r\n\r\n")
        client.sendall(GET + b"Connection: close\r\n\r\n")
        first, second = read(client).split(b"HTTP/1.1 200 OK")[1:]
    assert first.partition(b"\r\n\r\n")[2] == b"x" * MOST_SMALL_CHUNKS + b"y" * 100_000 + b"world['host', 'transfer-encoding']"
    assert second.endswith(b"['connection', 'host']")


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /echo HTTP/1.0\r\n\r\n",  # as old probes ask
        GET.replace(b"Host", b"hOST") + b"Connection: close\r\n\r\n",
        CHUNKED.replace(b"chunked", b" Chunked ").replace(b"Host", b"Connection: close\r\nHost") + b"0\r\n\r\n",
    ],
)
def test_older_and_odd_spellings_are_read(server: Server, request_: bytes) -> None:
    assert status(server.ask(request_)) == 200


UPGRADE = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: %b\r\nHTTP2-Settings: AAMAAABkAAQ\r\n"


@pytest.mark.parametrize("protocol", [b"websocket", b"h2c"])
def test_no_other_protocol_is_spoken(server: Server, protocol: bytes) -> None:
    upgrade = UPGRADE % protocol
    answers = server.ask(GET + upgrade + b"\r\n" + GET + b"Connection: close\r\n\r\n")
    assert answers.count(b"HTTP/1.1 200 OK") == 2
    assert answers.endswith(b"['connection', 'host']")
    answer = server.ask(b"POST /echo HTTP/1.1\r\nHost: here\r\n" + upgrade + b"Content-Length: 4\r\n\r\nbody")
    assert (status(answer), "leave out the header Upgrade" in message(answer)) == (400, True)


def test_a_few_requests_at_once_are_answered_in_their_order(server: Server) -> None:
    requests = [b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: 1\r\n\r\n%d" % n for n in range(MOST_PIPELINED)]
    answers = server.ask(b"".join([*requests, GET, b"Connection: close\r\n\r\n"]))
    assert re.findall(rb"(\d)\['content-length', 'host'\]", answers) == [b"%d" % n for n in range(MOST_PIPELINED)]


def test_many_requests_at_once_close_the_connection(server: Server) -> None:
    before = server.closed("malformed")
    assert server.ask((GET + b"\r\n") * 10_000).count(b"200 OK") <= 1
    assert server.closed("malformed") == before + 1


@pytest.mark.parametrize(("first", "then"), [(2 * SLOW_GET, b""), (SLOW_GET, SLOW_GET)])
def test_a_client_that_goes_ends_the_request_in_hand_whatever_waits_behind_it(server: Server, first: bytes, then: bytes) -> None:
    state = server.server.server_state
    with server.connect() as client:
        client.sendall(first)
        wait_for(lambda: len(state.tasks) == 1)
        client.sendall(then)
        wait_for(lambda: any(one.pipeline for one in state.connections))
    wait_for(lambda: not state.tasks)


@pytest.mark.parametrize("trickle", [False, True])
def test_an_answer_that_is_hardly_read_is_given_up(hasty: Server, trickle: bool) -> None:
    before = hasty.closed("unread")
    with hasty.connect(receive_bytes=4096) as client:
        client.sendall(LARGE_GET)

        def given_up() -> bool:
            if trickle:
                client.recv(4096)
            return hasty.closed("unread") == before + 1

        wait_for(given_up, pause=SECONDS / 50)
        wait_for(lambda: not hasty.server.server_state.tasks)
        assert len(read(client)) < LARGE


def test_a_slow_reader_gets_every_byte_and_the_next_answer_has_a_time_of_its_own(leaping: Server) -> None:
    with leaping.connect(receive_bytes=1 << 18) as client:
        answers = client.makefile("rb")
        for _ in range(2):
            client.sendall(LARGE_GET)
            wait_for(lambda: any(one._answer_timer._handle for one in leaping.server.server_state.connections))
            leaping.leap()  # twice is more than an answer may take
            while answers.readline() != b"\r\n":
                continue
            assert answers.read(LARGE)[:: 2**20] == bytes(range(65, 65 + LARGE // 2**20))
        assert leaping.closed("unread") == 0


@pytest.fixture
def crowded() -> Iterator[Server]:
    with serving(most=3, head_seconds=PATIENCE) as server:
        yield server


def test_one_connection_too_many_closes_the_one_idle_longest(crowded: Server) -> None:
    with crowded.connect() as busy, crowded.connect() as first, crowded.connect() as second:
        busy.sendall(SLOW_GET)
        first.sendall(GET + b"\r\n")
        assert one_answer(first)[0] == 200  # so that the second is idle for longer
        assert status(crowded.ask(GET + b"Connection: close\r\n\r\n")) == 200
        assert read(second) == b""
        first.sendall(GET + b"\r\n")
        assert one_answer(first)[0] == 200
        crowded.released.set()
        assert one_answer(busy) == (200, b"done")
    assert crowded.closed("crowded") == 1
    wait_for(lambda: crowded.open == 0)


def test_clients_that_send_heads_without_bodies_make_room_for_others(crowded: Server) -> None:
    """The one whose body stands still for longest goes, and a steady one stays."""
    head = b"POST /echo HTTP/1.1\r\nHost: here\r\nContent-Length: %d\r\n\r\n"
    tasks = crowded.server.server_state.tasks
    with crowded.connect() as steady, crowded.connect() as slower, crowded.connect() as slow:
        for number, (client, n_bytes) in enumerate(((steady, STEADY_BYTES + 1), (slower, 100), (slow, 100)), 1):
            client.sendall(head % n_bytes)
            wait_for(lambda n=number: len(tasks) == n)  # type: ignore[misc]
        slower.sendall(b"x")
        steady.sendall(b"x" * STEADY_BYTES)
        port: Any = crowded.server.config
        wait_for(lambda: next(iter(port.waiting)).client == slower.getsockname())
        assert status(crowded.ask(GET + b"Connection: close\r\n\r\n")) == 200
        assert read(slower) == b""
        steady.sendall(b"x")
        assert one_answer(steady)[0] == 200
    assert crowded.closed("crowded") == 1


def test_where_all_are_busy_a_new_connection_is_refused(crowded: Server) -> None:
    busy = [crowded.connect() for _ in range(3)]
    for one in busy:
        one.sendall(SLOW_GET)
    wait_for(lambda: len(crowded.server.server_state.tasks) == 3)
    answer = crowded.ask(b"")
    assert (status(answer), b"retry-after: 1" in answer) == (503, True)
    assert "3 connections are open and busy" in message(answer)
    crowded.released.set()
    for one in busy:
        assert one_answer(one) == (200, b"done")
        one.close()


def test_many_come_and_go_and_requests_are_answered(crowded: Server) -> None:
    for _ in range(20):
        waiting = [crowded.connect() for _ in range(10)]
        assert status(crowded.ask(GET + b"Connection: close\r\n\r\n")) == 200
        for one in waiting:
            one.close()
    wait_for(lambda: crowded.open == 0)


def test_a_refused_client_may_finish_what_it_sends(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else its system resets the connection, and the answer with it."""
    monkeypatch.setattr(connection, "LINGER_BYTES", 4 * 2**20)
    assert status(server.ask(CHUNKED + b"zz\r\n" + b"x" * 3 * 2**20)) == 400
    with server.connect() as client, pytest.raises(ConnectionError):
        client.sendall(CHUNKED + b"zz\r\n" + b"x" * 2**26)


def test_an_idle_connection_does_not_hold_up_the_end() -> None:
    with serving(head_seconds=ENDLESS, shutdown_seconds=ENDLESS) as server, server.connect(), server.connect() as used:
        used.sendall(GET + b"\r\n")
        assert one_answer(used)[0] == 200
        server.server.should_exit = True
        server.thread.join(PATIENCE)
        assert not server.thread.is_alive()


def test_a_connection_is_used_again_within_the_time_of_each_head(leaping: Server) -> None:
    with leaping.connect() as client:
        for _ in range(4):
            client.sendall(GET + b"\r\n")
            assert one_answer(client) == (200, b"['host']")
            leaping.leap()
