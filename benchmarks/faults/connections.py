"""Faults of clients and their connections."""

import resource
import socket
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.faults.drill import Drill, SkipError, drill, must, request

IDLE = 1000
BODY_SECONDS = 2
TURNS = 15


def idle_connections(folder: Path) -> str:
    """1,000 connections on which nothing is sent."""
    allow_files(2 * IDLE)
    with drill(folder) as it:
        before = median_ms(it)
        with connections(it.service.port, IDLE) as held:
            during = median_ms(it)
            must(it.health() == (200, 200), f"health is {it.health()}")
            number = len(held)
        return f"{number:,} held open: none fails; a request takes {during / before:.2f} times its {before:.0f} ms of before"


def slow_clients(folder: Path) -> str:
    """50 clients that send their body a byte at a time."""
    with drill(folder, body_seconds=BODY_SECONDS) as it:
        before = median_ms(it)
        with connections(it.service.port, 50) as slow:
            head = b"POST /rerank HTTP/1.1\r\nHost: here\r\nContent-Length: 100000\r\n\r\n"
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
            f"with body_seconds={BODY_SECONDS} each is told 408; a request beside takes {during / before:.2f} times its time before"
        )


def allow_files(number: int) -> None:
    """Let this process and its children open so many files. Raises SkipError where the system does not."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= number or soft == resource.RLIM_INFINITY:
        return
    if hard not in (resource.RLIM_INFINITY,) and hard < number:
        raise SkipError(f"no more than {hard} files may be open here (ulimit -n); {number} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (number, hard))


@contextmanager
def connections(port: int, number: int) -> Iterator[list[socket.socket]]:
    """So many connections to it, closed in the end."""
    held: list[socket.socket] = []
    try:
        while len(held) < number:
            held.append(socket.create_connection(("127.0.0.1", port), timeout=30))
        yield held
    finally:
        for one in held:
            one.close()


def one_ms(it: Drill) -> float:
    """What a request takes, in milliseconds; its answer must be right."""
    started = time.perf_counter()
    scores = it.scores(request("otter"))
    took = 1000 * (time.perf_counter() - started)
    must(max(abs(a - b) for a, b in zip(scores, it.known["otter"], strict=True)) < 1e-4, "its scores have changed")
    return took


def median_ms(it: Drill) -> float:
    """The median of a few."""
    return statistics.median(one_ms(it) for _ in range(TURNS))
