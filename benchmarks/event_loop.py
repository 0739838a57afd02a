"""Does the event loop stay free? Polls /health/live while the service prepares a very large request.

    python benchmarks/event_loop.py [--documents 1000] [--words 20000] [--command "keyblock-serve"]

Starts the service with raised limits, posts one request (about 120 MB by default) and prints how long /health/live took to answer
in each stage: reading the body, preparing, scoring. The issue's bound is 100 ms while preparing.
"""

import argparse
import json
import os
import random
import shlex
import socket
import statistics
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field

BOUND_MS = 100
POLL_SECONDS = 0.02
VOCABULARY = 20_000
START_SECONDS = 120


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
            head = f"POST /rerank HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(self.body)}\r\n\r\n"
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


def free_port() -> int:
    """A port that no server listens on.

    On Linux no other process gets it while this process lives: the port stays bound to a socket that never listens. A server that
    binds it with SO_REUSEADDR, as servers do, shares it with that socket.
    """
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
        if sys.platform == "linux":  # elsewhere a second one could not bind it
            probe.detach()
        return port


def get(port: int, path: str) -> float:
    """Seconds until the answer; raises OSError when there is none."""
    began = time.perf_counter()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=60) as response:
        response.read()
    return time.perf_counter() - began


def wait_ready(port: int) -> None:
    """Wait until /health/ready answers. Raises OSError after START_SECONDS."""
    until = time.perf_counter() + START_SECONDS
    while True:
        try:
            get(port, "/health/ready")
        except (OSError, urllib.error.URLError):
            if time.perf_counter() > until:
                raise
            time.sleep(0.1)
        else:
            return


def watch(upload: Upload) -> list[tuple[float, float]]:
    """Poll /health/live until the upload is answered: a list of (start time, seconds)."""
    looks = []
    while upload.is_alive():
        looks.append((time.perf_counter(), get(upload.port, "/health/live")))
        time.sleep(POLL_SECONDS)
    return looks


def report(upload: Upload, looks: list[tuple[float, float]]) -> float:
    """Print the table. Returns the slowest poll between the last byte sent and the end of preparation, in milliseconds."""
    prepared = upload.sent + (upload.timings["parse"] + upload.timings["prepare"]) / 1e3
    stages = {"reading": (0.0, upload.sent), "preparing": (upload.sent, prepared), "scoring": (prepared, upload.answered)}
    print(f"stages of the request, ms: {upload.timings}")
    worst = 0.0
    for stage, (start, end) in stages.items():
        took = sorted(seconds * 1e3 for when, seconds in looks if start <= when < end)
        if took:
            p99 = took[min(len(took) - 1, int(len(took) * 0.99))]
            figures = f"median {statistics.median(took):.1f} ms, p99 {p99:.1f}, worst {took[-1]:.1f}"
            print(f"/health/live while {stage}: {len(took)} looks, {figures}")
            worst = max(worst, took[-1]) if stage == "preparing" else worst
    return worst


def main() -> int:
    """Run the benchmark. Returns exit code 1 if a poll took longer than the bound."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=1000)
    parser.add_argument("--words", type=int, default=20_000)
    parser.add_argument("--command", default=f"{sys.executable} -m service.cli", help="what starts the service")
    options = parser.parse_args()
    body = make_body(options.documents, options.words)
    print(f"{options.documents} documents x {options.words} words: {len(body) / 1e6:.0f} MB")
    port = free_port()
    limits = {"KEYBLOCK_MAX_BODY_BYTES": str(len(body)), "KEYBLOCK_MAX_DOCUMENTS": str(options.documents)}
    server = subprocess.Popen([*shlex.split(options.command), "--port", str(port)], env=os.environ | limits)
    try:
        wait_ready(port)
        upload = Upload(port, body)
        upload.start()
        worst = report(upload, watch(upload))
    finally:
        server.terminate()
        server.wait(60)
    print(f"worst while preparing: {worst:.1f} ms, bound {BOUND_MS} ms")
    return int(worst > BOUND_MS)


if __name__ == "__main__":
    sys.exit(main())
