"""Faults of clients and their connections."""

import json
import re
import socket
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import httpx
import zstandard

from benchmarks.faults.drill import PATIENCE, Drill, NotHeldError, drill, must, request, until
from service.keys.keys import make
from tests.support.serving import COMMAND

IDLE = 1100
FILES = 1024  # the usual limit of open files
BODY_SECONDS = ANSWER_SECONDS = 2
TURNS = 15
MIB = 2**20
ENDLESS = 100 * MIB
UNREAD = 20  # answers
HEADS, FEW = 1024, 200
POD_BYTES = 256 * MIB  # that requests in flight may hold in k8s/base
BESIDE_SECONDS = 10  # that others ask beside heads without bodies
REFUSED_SECONDS = 2  # that they may be refused
UNREAD_TEXT = "a " * 1_000_000
SHOWN = {"return_documents": True, "deadline_ms": 1}
CHUNKED = b"POST /rerank HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
LIMITED = ("bash", "-c", f'ulimit -n {FILES} && exec "$0"', str(COMMAND))


def idle_connections(folder: Path) -> str:
    """1,100 connections send nothing, while 1,024 files may be open."""
    with drill(folder, LIMITED) as it:
        before = median_ms(it)
        with connections(it.service.port, IDLE):
            during = median_ms(it)
            must(it.health() == (200, 200), f"health is {it.health()}")
            ended = metric(it, 'keyblock_closed_connections_total{why="crowded"}')
        return (
            f"{IDLE:,} are opened; the {ended:.0f} that were idle longest are closed to make room; a request takes "
            f"{during / before:.2f} times as long as before ({before:.0f} ms)"
        )


def endless_head(folder: Path) -> str:
    """100 MiB of header lines on one connection."""
    line = b"".join(b"name-%d: value\r\n" % n for n in range(10_000))
    with drill(folder) as it, it.asking() as tally:
        before = memory(it)
        with connections(it.service.port, 1) as (one,):
            sent = flood(one, b"GET / HTTP/1.1\r\nHost: localhost\r\n", line, ENDLESS)
            status = answered(one)
        grown = memory(it) - before
        must(status == 431, f"it was answered {status}")
        must(grown < 20 * MIB, f"memory has grown by {grown / MIB:.0f} MiB")
    return (
        f"431, and the connection is closed after {sent / MIB:.1f} MiB; memory grows by {grown / MIB:.0f} MiB; "
        f"other clients: {tally.check()}"
    )


def url_in_pieces(folder: Path) -> str:
    """A URL that never ends, in small pieces, on four connections."""
    return beside_floods(folder, b"GET /", b"a" * 16_000, 4, {431, 0})


def tiny_chunks(folder: Path) -> str:
    """Bodies in chunks of one byte, on four connections."""
    return beside_floods(folder, CHUNKED, b"1\r\nx\r\n" * 40_000, 4, {400, 0})


def endless_trailers(folder: Path) -> str:
    """Trailers that never end after a body, on four connections."""
    return beside_floods(folder, CHUNKED + b"1\r\nx\r\n0\r\n", b"name: value\r\n" * 20_000, 4, {431, 0})


def requests_at_once(folder: Path) -> str:
    """Four connections send requests without end, and nobody reads the answers."""
    return beside_floods(folder, b"", b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 5_000, 4, {200, 0})


def unread_answers(folder: Path) -> str:
    """20 requests of 2 KB with answers of 30 MB, and nobody reads the answers."""
    body = zstandard.compress(json.dumps(request("newt") | {"documents": [UNREAD_TEXT] * 15, **SHOWN}).encode())
    head = b"POST /rerank HTTP/1.1\r\nHost: localhost\r\nContent-Encoding: zstd\r\nContent-Length: %d\r\n\r\n" % len(body)
    room = 4 * 15 * len(UNREAD_TEXT)
    with drill(folder, answer_seconds=ANSWER_SECONDS, max_bytes_in_flight=room) as it:
        with connections(it.service.port, UNREAD, receive_bytes=4096) as unread:
            for one in unread:
                one.sendall(head + body)
            statuses = [answered(one) for one in unread]
            held = metric(it, "keyblock_in_flight_requests")
            took = until(lambda: metric(it, "keyblock_in_flight_requests") == 0, "the answers are given up")
        must(set(statuses) <= {200, 429}, f"they were answered {statuses}")
        must(statuses.count(200) >= 1 <= held, f"{held} are in flight, and they were answered {statuses}")
        one_ms(it)
        return (
            f"with room for {room / MIB:.0f} MiB in flight: {statuses.count(200)} x 200, {statuses.count(429)} x 429; with "
            f"answer_seconds={ANSWER_SECONDS} the service drops unread answers, and {took:.1f} s later none is in flight"
        )


def slow_clients(folder: Path) -> str:
    """50 clients send their bodies a byte at a time."""
    with drill(folder, body_seconds=BODY_SECONDS) as it:
        before = median_ms(it)
        with connections(it.service.port, 50) as slow:
            head = b"POST /rerank HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
            for one in slow:
                one.sendall(head)
            until, took = time.monotonic() + BODY_SECONDS - 0.5, []
            while time.monotonic() < until:
                for one in slow:
                    one.sendall(b" ")
                took.append(one_ms(it))
            answers = {one.recv(100).split(b"\r\n")[0].decode() for one in slow}
        must(answers == {"HTTP/1.1 408 Request Timeout"}, f"they were answered {answers}")
        during = statistics.median(took)
        return (
            f"with body_seconds={BODY_SECONDS} each gets 408; another request takes {during / before:.2f} times as long as before"
        )


def slow_uploads(folder: Path) -> str:
    """20 clients send documents to the store a byte at a time."""
    head = b"PUT /documents HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n"
    with drill(folder, store=folder / "store", body_seconds=BODY_SECONDS) as it:
        with connections(it.service.port, 20) as slow:
            for one in slow:
                one.sendall(head)
            stop = time.monotonic() + BODY_SECONDS - 0.5
            while time.monotonic() < stop:
                for one in slow:
                    one.sendall(b" ")
                one_ms(it)
            answers = {answered(one) for one in slow}
        must(answers == {408}, f"they were answered {answers}")
        must(metric(it, "keyblock_in_flight_requests") == 0, "they are in flight still")
        return f"with body_seconds={BODY_SECONDS} each gets 408; afterwards no request is in flight"


def heads_without_bodies(folder: Path) -> str:
    """Clients send 1,024 heads of POST /rerank without bodies, then as many as the limit of connections allows."""
    head = b"POST /rerank HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n"
    outcomes = []
    with drill(folder, max_connections=HEADS + FEW) as it, held_heads(it, head, HEADS):
        outcomes.append(f"beside {HEADS:,} heads ({HEADS * len(head) // 1024} KB): {statuses_beside(it)}")
        with held_heads(it, head, FEW):
            outcomes.append(f"beside {HEADS + FEW:,} (the limit of connections): {statuses_beside(it)}")
    return "; ".join(outcomes)


def heads_of_uploads(folder: Path) -> str:
    """Clients send 128 heads of PUT /documents without bodies, with room for 256 MiB in flight."""
    head = b"PUT /documents HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999\r\n\r\n"
    with drill(folder, store=folder / "store", max_bytes_in_flight=POD_BYTES) as it, held_heads(it, head, 128):
        return f"{128 * len(head) // 1024} KB: {statuses_beside(it)}"


def kept_from_ranking(folder: Path) -> str:
    """Less than 1 MiB from callers without a key, or with a key for documents only, to keep others from ranking."""
    rank, store = make("rank", ["rank"]), make("store", ["documents"])
    keys = f"{rank.entry}\n{store.entry}"
    limits = {"store": folder / "store", "max_bytes_in_flight": POD_BYTES, "max_connections": 2 * HEADS}
    bearer = f"Authorization: Bearer {store.secret}\r\n".encode()
    line, costly = (
        zstandard.compress(json.dumps({"id": "huge", "text": text}, ensure_ascii=False).encode() + b"\n")
        for text in ("a b c d. " * 430_000, "\U0001f600\u200d" * 1_900_000)
    )
    put, put_costly = (
        b"PUT /documents HTTP/1.1\r\nHost: [::1]\r\nContent-Encoding: zstd\r\n%bContent-Length: %d\r\n\r\n" % (bearer, len(packed))
        for packed in (line, costly)
    )
    attacks = {
        "heads of POST /rerank without a key": (b"POST /rerank HTTP/1.1\r\nHost: [::1]\r\nContent-Length: 9\r\n\r\n", 3 * HEADS),
        "heads of POST /rerank with the key for documents": (
            b"POST /rerank HTTP/1.1\r\nHost: localhost\r\n%bContent-Length: 9\r\n\r\n" % bearer,
            3 * HEADS,
        ),
        "heads of PUT /documents": (put, 3 * HEADS),
        "unread answers of 3.9 MB": (b"GET /documents/huge HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % bearer, HEADS),
        "uploads that unpack to 3.9 MB": (put + line, 200),
        "uploads of 3.8 million emoji and joiners": (put_costly + costly, 200),
    }
    found = []
    with drill(folder, key=rank.secret, api_keys=keys, **limits) as it:
        with connections(it.service.port, 1) as (one,):
            one.sendall(put + line)
            must(answered(one) == 200, "a document cannot be stored")
        for name, (sent, number) in attacks.items():
            must(number * len(sent) < MIB, f"{name} are {number * len(sent)} bytes")
            with held_heads(it, sent, number), because(name):
                found.append(f"{number:,} {name} ({number * len(sent) // 1024} KB): {statuses_beside(it)}")
    return "; ".join(found)


def ambiguous_requests(folder: Path) -> str:
    """Requests that a proxy and the service could read differently, and a question about a model without a key."""
    new = make("reader", ["rank"])
    asked = {
        "two Host headers": (b"GET /health/live HTTP/1.1\r\nHost: localhost\r\nHost: b\r\n\r\n", 400),
        "no Host header": (b"GET /health/live HTTP/1.1\r\n\r\n", 400),
        "Transfer-Encoding: gzip, chunked": (CHUNKED.replace(b"chunked", b"gzip, chunked") + b"0\r\n\r\n", 501),
        "HTTP/2.0": (b"GET /health/live HTTP/2.0\r\nHost: localhost\r\n\r\n", 505),
        "the readiness of a model, without a key": (b"GET /v2/models/default/ready HTTP/1.1\r\nHost: localhost\r\n\r\n", 401),
    }
    found = {}
    with drill(folder, key=new.secret, api_keys=new.entry) as it:
        for name, (sent, _) in asked.items():
            with connections(it.service.port, 1) as (one,):
                one.sendall(sent)
                found[name] = answered(one)
    outcome = ", ".join(f"{name}: {status}" for name, status in found.items())
    must(found == {name: status for name, (_, status) in asked.items()}, outcome)
    return outcome


@contextmanager
def because(name: str) -> Iterator[None]:
    """Name the attack in a NotHeldError."""
    try:
        yield
    except NotHeldError as error:
        raise NotHeldError(f"{name}: {error}") from None


@contextmanager
def held_heads(it: Drill, sent: bytes, number: int) -> Iterator[None]:
    """So many connections that have sent this and wait, reading nothing."""
    with connections(it.service.port, number, receive_bytes=4096) as held:
        for one in held:
            with suppress(OSError):  # closed already, to make room
                one.sendall(sent)
        yield


def statuses_beside(it: Drill) -> str:
    """The statuses of requests for BESIDE_SECONDS, each on a connection of its own. All must be ranked in the end, most at once."""
    statuses: Counter[int] = Counter()
    asked = request("otter", 3)
    last_bad = started = time.monotonic()
    while time.monotonic() - started < BESIDE_SECONDS:
        try:
            answer = httpx.post(f"{it.service.url}/rerank", json=asked, headers=it.client.headers, timeout=PATIENCE)
            status = answer.status_code
        except httpx.TransportError:
            status = 0
        statuses[status] += 1
        last_bad = last_bad if status == 200 else time.monotonic()
    said = ", ".join(f"{number} x {status or 'no answer'}" for status, number in sorted(statuses.items()))
    must(statuses[200] and last_bad - started < REFUSED_SECONDS, f"others were answered {said} in {BESIDE_SECONDS} s")
    must(it.health() == (200, 200), f"health is {it.health()}")
    return said


def beside_floods(folder: Path, start: bytes, more: bytes, number: int, allowed: set[int]) -> str:
    """What clients and /health/live see while so many connections send without end, each opened again when it is closed."""
    with drill(folder) as it, it.asking() as tally:
        before, stop, statuses, sent = memory(it), threading.Event(), set[int](), [0]

        def attack() -> None:
            while not stop.is_set():
                with connections(it.service.port, 1) as (one,):
                    sent[0] += flood(one, start, more, ENDLESS)
                    statuses.add(answered(one))

        threads = [threading.Thread(target=attack) for _ in range(number)]
        for thread in threads:
            thread.start()
        took = [timed(lambda: must(it.client.get("/health/live").status_code == 200, "it is not live")) for _ in range(50)]
        stop.set()
        for thread in threads:
            thread.join()
        grown = memory(it) - before
        must(grown < 50 * MIB, f"memory has grown by {grown / MIB:.0f} MiB")
        must(statuses <= allowed, f"they were answered {statuses}")
        must(max(took) < 1, f"/health/live took {max(took):.1f} s")
    outcome = " or ".join(map(str, sorted(statuses - {0}))) or "no answer"
    return (
        f"{outcome}, and each connection is closed; {sent[0] / MIB:.0f} MiB were sent, memory grows by {grown / MIB:.0f} MiB; "
        f"/health/live: median {1000 * statistics.median(took):.0f} ms, worst {1000 * max(took):.0f} ms; "
        f"other clients: {tally.check()}"
    )


def flood(one: socket.socket, start: bytes, more: bytes, most: int) -> int:
    """Send `start` and `more` of it again and again until the service closes, or it is enough; the bytes that were taken."""
    sent = 0
    with suppress(OSError):
        one.settimeout(10)
        one.sendall(start)
        while sent < most:
            sent += one.send(more)
    return sent


def answered(one: socket.socket) -> int:
    """The status of the answer; 0 if the connection was closed without one."""
    one.settimeout(60)
    with suppress(OSError):
        if found := re.match(rb"HTTP/1.1 (\d+) ", one.recv(100)):
            return int(found[1])
    return 0


def memory(it: Drill) -> float:
    """Memory of the service's process, in bytes."""
    return metric(it, "process_resident_memory_bytes")


def metric(it: Drill, name: str) -> float:
    """The value of a metric of the service."""
    text = it.client.get("/metrics").text
    return float(next(line for line in text.splitlines() if line.startswith(f"{name} ")).rsplit(" ", 1)[1])


@contextmanager
def connections(port: int, number: int, receive_bytes: int = 0) -> Iterator[list[socket.socket]]:
    """So many connections to the service, closed at the end; with a small receive buffer if one is given."""
    held: list[socket.socket] = []
    try:
        while len(held) < number:
            one = socket.socket()
            held.append(one)
            if receive_bytes:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
            one.settimeout(30)
            one.connect(("127.0.0.1", port))
        yield held
    finally:
        for one in held:
            one.close()


def one_ms(it: Drill) -> float:
    """The milliseconds of a request, whose answer must be right."""
    scores: list[float] = []
    took = timed(lambda: scores.extend(it.scores(request("otter"))))
    must(max(abs(a - b) for a, b in zip(scores, it.known["otter"], strict=True)) < 1e-4, "its scores have changed")
    return 1000 * took


def timed(work: Callable[[], object]) -> float:
    """The seconds that the work takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def median_ms(it: Drill) -> float:
    """The median milliseconds of a few requests."""
    return statistics.median(one_ms(it) for _ in range(TURNS))
