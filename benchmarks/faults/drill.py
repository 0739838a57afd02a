"""What every fault needs: a service of its own, requests with known answers, and clients that ask throughout."""

import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from keyblock.runtime.cpus import default_threads
from tests.support.serving import Service

FAULTY = (sys.executable, "-m", "benchmarks.faults.serving")
PATIENCE = 120.0  # seconds
TOLERANCE = 1e-4
WORDS = 300  # of a document, about
CLIENTS = 3


class NotHeldError(AssertionError):
    """A condition that must hold under a fault does not hold; the message is one line."""


class SkipError(RuntimeError):
    """A fault cannot be done on this machine; the message says why in one line."""


def must(held: object, what: str) -> None:
    """Check a condition. Raises NotHeldError with the problem unless it holds."""
    if not held:
        raise NotHeldError(what)


def until(condition: Any, what: str, seconds: float = PATIENCE) -> float:
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
class Tally:
    """Counts of what clients were answered during a drill.

    Attributes:
        statuses: how often each HTTP status was answered.
        wrong: answers whose scores are not those of an idle service.
        lost: connections that ended without an answer.
    """

    statuses: Counter[int] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lost: int = 0

    def check(self, allowed: tuple[int, ...] = (200,), lost: int = 0) -> str:
        """The counts in words. Raises NotHeldError for a wrong answer, a status not allowed, or too many lost connections."""
        must(not self.wrong, f"{len(self.wrong)} wrong answers, such as {self.wrong[:1]}")
        must(set(self.statuses) <= set(allowed), f"clients were answered {dict(self.statuses)}")
        must(self.lost <= lost, f"{self.lost} clients lost their connection")
        must(self.statuses[200], "no client was answered")
        return ", ".join(f"{number:,} x {status}" for status, number in sorted(self.statuses.items()))


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
        self.known = {name: self.scores(request(name)) for name in ("otter", "heron", "newt", "carp")[:CLIENTS]}

    def post(self, body: Mapping[str, object]) -> httpx.Response:
        """POST /rerank."""
        return self.client.post("/rerank", content=json.dumps(body).encode())

    def scores(self, body: Mapping[str, object]) -> list[float]:
        """Scores in the order of the documents given. Raises NotHeldError for any status but 200."""
        response = self.post(body)
        must(response.status_code == 200, f"{response.status_code} {response.text[:200]}")
        return in_order(response.json())

    def health(self) -> tuple[int, int]:
        """Statuses of /health/live and /health/ready."""
        return self.client.get("/health/live").status_code, self.client.get("/health/ready").status_code

    @contextmanager
    def asking(self) -> Iterator[Tally]:
        """Let clients send one request after the other, each on a connection of its own, until the block ends."""
        tally, stop = Tally(), threading.Event()
        threads = [threading.Thread(target=self._ask, args=(name, tally, stop)) for name in self.known]
        for thread in threads:
            thread.start()
        try:
            until(lambda: tally.statuses[200], "a client is answered")
            yield tally
        finally:
            stop.set()
            for thread in threads:
                thread.join(PATIENCE)

    def _ask(self, name: str, tally: Tally, stop: threading.Event) -> None:
        body, known = json.dumps(request(name)).encode(), self.known[name]
        with httpx.Client(base_url=self.service.url, timeout=PATIENCE, headers=self._headers) as client:
            while not stop.is_set():
                try:
                    response = client.post("/rerank", content=body)
                except httpx.TransportError:
                    tally.lost += 1
                    time.sleep(0.05)
                    continue
                tally.statuses[response.status_code] += 1
                if response.status_code == 200:
                    off = max(abs(a - b) for a, b in zip(in_order(response.json()), known, strict=True))
                    if off > TOLERANCE:
                        tally.wrong.append(f"{name}: a score is off by {off:.2g}")


def in_order(answer: Mapping[str, Any]) -> list[float]:
    """Scores in the order of the documents."""
    return [result["relevance_score"] for result in sorted(answer["results"], key=lambda result: result["index"])]


@contextmanager
def drill(folder: Path, command: tuple[str, ...] | None = None, key: str = "", **settings: object) -> Iterator[Drill]:
    """A service with these settings and its clients, who have this key; it computes in fp32, so that scores can be compared."""
    given = {"precision": "fp32", **settings}
    folder.mkdir(parents=True, exist_ok=True)
    threads = default_threads()
    log = folder / f"service-{time.monotonic_ns()}.log"
    with Service(threads, log, command, **given) if command else Service(threads, log, **given) as service:
        made = Drill(service, key)
        try:
            yield made
        finally:
            made.client.close()
