"""The event loop stays free while large documents are prepared."""

import json
import os
import random
import socket
import statistics
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

from tests.support.ports import free_port, get, wait_ready

ENOUGH_LOOKS = 5  # a loop that is not free is looked at once: that look takes as long as the preparation
POLL_SECONDS = 0.02
VOCABULARY = 20_000


@dataclass
class Upload(threading.Thread):
    """Posts the body from its own thread; sending releases the interpreter lock."""

    port: int
    body: bytes
    sent: float = 0.0
    answered: float = 0.0
    answer: bytes = b""
    timings: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(daemon=True)

    __hash__ = threading.Thread.__hash__

    def run(self) -> None:
        """Send, then wait for the answer."""
        with socket.create_connection(("127.0.0.1", self.port)) as connection:
            head = f"POST /rerank HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {len(self.body)}\r\n\r\n"
            connection.sendall(head.encode())
            connection.sendall(self.body)
            self.sent = time.perf_counter()
            while chunk := connection.recv(1 << 20):
                self.answer += chunk
        self.answered = time.perf_counter()
        self.timings = json.loads(self.answer.split(b"\r\n\r\n", 1)[1])["meta"]["timings_ms"]


def make_body(n_documents: int, n_words: int) -> bytes:
    """A request of random words with punctuation; every document different."""
    rng = random.Random(7)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=rng.randint(2, 9))) for _ in range(VOCABULARY)]
    words += [word + mark for word in words[: VOCABULARY // 10] for mark in ".,"]
    documents = [" ".join(rng.choices(words, k=n_words)) for _ in range(n_documents)]
    return json.dumps({"query": " ".join(words[:6]), "documents": documents}).encode()


def watch(upload: Upload) -> list[tuple[float, float]]:
    """Poll /health/live until the upload is answered: a list of (start time, seconds)."""
    looks = []
    while upload.is_alive():
        looks.append((time.perf_counter(), get(upload.port, "/health/live")))
        time.sleep(POLL_SECONDS)
    return looks


def test_health_is_answered_while_large_documents_are_prepared(bundle_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "service.cli", "--port", str(port), "--provider", "cpu", "--bundle", str(bundle_path)]
    server = subprocess.Popen(
        command, env=os.environ | {"KEYBLOCK_CACHE_BYTES": "0", "KEYBLOCK_SCORE_CACHE_BYTES": "0"}, stderr=subprocess.DEVNULL
    )
    try:
        wait_ready(port)
        upload = Upload(port, make_body(60, 20_000))
        upload.start()
        looks = watch(upload)
    finally:
        server.terminate()
        server.wait(60)
    seconds = (upload.timings["parse"] + upload.timings["prepare"]) / 1e3
    took = [look for when, look in looks if upload.sent < when < upload.sent + seconds]
    assert len(took) >= ENOUGH_LOOKS
    assert statistics.median(took) < seconds / ENOUGH_LOOKS
