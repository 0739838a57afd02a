"""What every fault needs: a service of its own, requests with known answers, clients that ask throughout, and a watch on it."""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from benchmarks.harness import TOLERANCE, in_order, largest_difference
from keyblock.runtime.cpus import default_threads
from tests.support.serving import COMMAND, Service

FAULTY = (sys.executable, "-m", "benchmarks.faults.serving")
PATIENCE = 120.0  # seconds
WORDS = 300  # of a document, about
CLIENTS = ("otter", "heron", "newt")
AGAIN_SECONDS = 0.05  # until a client that was refused asks again
LOST = 0  # in place of a status: the connection ended without an answer
MIB = 2**20


class NotHeldError(AssertionError):
    """A condition that must hold under a fault does not hold; the message is one line."""


def must(held: object, what: str) -> None:
    """Check a condition. Raises NotHeldError with the problem unless it holds."""
    if not held:
        raise NotHeldError(what)


def until(condition: Callable[[], object], what: str, seconds: float = PATIENCE) -> float:
    """Wait for a condition; returns the seconds it took. Raises NotHeldError after so many seconds."""
    started = time.monotonic()
    while not condition():
        must(time.monotonic() - started < seconds, f"{what}: not within {seconds:g} s")
        time.sleep(0.01)
    return time.monotonic() - started


def request(name: str, documents: int = 10, *, extra: str = "", **more: object) -> dict[str, Any]:
    """A request whose documents say its name; its query says `extra` too, so that every sequence does."""
    texts = [f"{name} number {n} crosses the river at bridge {n * n}. " * (WORDS // 9) for n in range(documents)]
    return {"query": f"river bridge {name} {extra}", "documents": texts, **more}


@dataclass
class Seen:
    """What clients and probes saw of the service under a fault.

    Attributes:
        statuses: how often each HTTP status was answered, or LOST.
        wrong: answers whose scores are not those of an idle service.
        live: seconds that /health/live took, each time.
        mebibytes: that the service's memory grew by, at its peak.
        bad_until: seconds after the beginning at which a client was last refused.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    live: list[float] = field(default_factory=list)
    mebibytes: float = 0.0
    bad_until: float = 0.0
    began: float = field(default_factory=time.monotonic)

    def add(self, status: int) -> None:
        """Count an answer."""
        self.statuses[status] += 1
        if status != 200:
            self.bad_until = time.monotonic() - self.began

    def check(self, allowed: tuple[int, ...] = (200,), bad_seconds: float = 0.0) -> str:
        """The statuses in words. Raises NotHeldError for a wrong answer, or a status not allowed after so many seconds."""
        said = counted(self.statuses)
        must(not self.wrong, f"{len(self.wrong)} wrong answers, such as {self.wrong[:1]}")
        must(set(self.statuses) <= set(allowed) or self.bad_until < bad_seconds, f"clients were answered {said}")
        must(self.statuses[200], "no client was answered")
        return said

    def cost(self) -> str:
        """Memory and health in words."""
        return f"memory grows by {self.mebibytes:.0f} MiB, /health/live takes {1000 * max(self.live):.0f} ms at most"


def counted(statuses: Counter[int]) -> str:
    """Statuses in words."""
    names = {LOST: "closed", -1: "no answer"}
    return ", ".join(f"{number:,} x {names.get(status, status)}" for status, number in sorted(statuses.items()))


class Drill:
    """A service and the clients that ask it.

    Args:
        service: running.
        key: of its clients; empty for none.
    """

    def __init__(self, service: Service, key: str = "") -> None:
        self.service = service
        self._headers = {"authorization": f"Bearer {key}"} if key else {}
        self.client = httpx.Client(base_url=service.url, timeout=PATIENCE, headers=self._headers)
        self._known = {name: in_order(self.post(request(name)).raise_for_status().json()) for name in CLIENTS}

    def post(self, body: Mapping[str, object]) -> httpx.Response:
        """POST /rerank."""
        return self.client.post("/rerank", json=body)

    def health(self) -> tuple[int, int]:
        """Statuses of /health/live and /health/ready."""
        return self.client.get("/health/live").status_code, self.client.get("/health/ready").status_code

    def in_flight(self) -> float:
        """The number of requests in flight."""
        text = self.client.get("/metrics").text
        return float(next(line for line in text.splitlines() if line.startswith("keyblock_in_flight_requests ")).split()[1])

    @contextmanager
    def asking(self) -> Iterator[Seen]:
        """Let clients ask, each request on a new connection, and watch memory and health, until the block ends."""
        seen, stop = Seen(), threading.Event()
        threads = [threading.Thread(target=self._ask, args=(name, seen, stop)) for name in self._known]
        threads.append(threading.Thread(target=self._watch, args=(seen, stop)))
        for thread in threads:
            thread.start()
        try:
            until(lambda: seen.statuses[200] and seen.live, "a client is answered")
            yield seen
        finally:
            stop.set()
            for thread in threads:
                thread.join(PATIENCE)

    def _ask(self, name: str, seen: Seen, stop: threading.Event) -> None:
        body = json.dumps(request(name)).encode()
        while not stop.is_set():
            try:
                response = httpx.post(f"{self.service.url}/rerank", content=body, headers=self._headers, timeout=PATIENCE)
            except httpx.TransportError:
                seen.add(LOST)
                stop.wait(AGAIN_SECONDS)
                continue
            seen.add(response.status_code)
            if response.status_code != 200:
                stop.wait(AGAIN_SECONDS)
            elif (off := largest_difference(response.json(), self._known[name])) > TOLERANCE:
                seen.wrong.append(f"{name}: a score is off by {off:.2g}")

    def _watch(self, seen: Seen, stop: threading.Event) -> None:
        before = self.service.resident()
        with httpx.Client(base_url=self.service.url, timeout=PATIENCE) as client, suppress(httpx.TransportError, OSError):
            while not stop.wait(0.02):  # until the service is gone
                started = time.perf_counter()
                client.get("/health/live")
                seen.live.append(time.perf_counter() - started)
                seen.mebibytes = max(seen.mebibytes, (self.service.resident() - before) / MIB)


@contextmanager
def drill(folder: Path, command: tuple[str, ...] = (str(COMMAND),), key: str = "", **settings: object) -> Iterator[Drill]:
    """A service with these settings and its clients, who have this key; it computes in fp32, so that scores can be compared."""
    log = folder / f"service-{time.monotonic_ns()}.log"
    with Service(default_threads(), log, command, **{"precision": "fp32", **settings}) as service:
        made = Drill(service, key)
        try:
            yield made
        finally:
            made.client.close()
