"""KeyBlock in front of a reranker that runs already: what it adds to the upstream's own time, and what it does when that fails.

    python -m benchmarks.upstream [--url http://HOST:PORT/rerank] [--queries 20] [--documents 20] [--words 2000]

Without --url the upstream is another keyblock-serve on the embedded bundle. Each query is ranked through KeyBlock; then the
upstream is asked directly about the very passages that KeyBlock chose, and both rankings are compared. Without --url the upstream
is then stopped with SIGSTOP, killed, and replaced by one that answers 429, and the answers in front of it are timed.
"""

import argparse
import os
import signal
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from benchmarks.event_loop import free_port
from benchmarks.performance.service import Service
from benchmarks.performance.texts import Request, invented
from service.settings import DEFAULT_BUNDLE

SECONDS, PATIENCE = 60, 2  # for an answer; for the upstream when it fails
ASKED = {"raw_scores": True, "return_blocks": True}
DEADLINE_MS = 500
FAILURES = 5  # requests that meet each failure


class Timed(NamedTuple):
    """An answer, and the milliseconds from sending to it."""

    milliseconds: float
    body: dict[str, Any]


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    source = invented(DEFAULT_BUNDLE / "tokenizer.json")
    requests = [source.request(options.documents, options.words) for _ in range(options.queries)]
    with tempfile.TemporaryDirectory() as directory:
        logs = Path(directory)
        if options.url:
            with front(logs, options.url, SECONDS) as service:
                compare(service.url, options.url, requests)
            return
        port = free_port()
        url = f"http://127.0.0.1:{port}/rerank"
        upstream = Service(1, logs / "upstream", port=port)
        with front(logs, url, SECONDS) as service:
            compare(service.url, url, requests)
        with front(logs, url, PATIENCE) as service:
            break_it(service.url, upstream, port, requests[0])


@contextmanager
def front(logs: Path, url: str, seconds: int) -> Iterator[Service]:
    """KeyBlock in front of the upstream, which has so long for a request."""
    with Service(1, logs / "front", upstream=url, upstream_timeout_ms=1000 * seconds) as service:
        yield service


def post(url: str, query: str, documents: list[str], **options: Any) -> Timed:
    """A request that must be answered with 200."""
    started = time.perf_counter()
    response = httpx.post(url, json={"query": query, "documents": documents, **options}, timeout=SECONDS)
    took = time.perf_counter() - started
    response.raise_for_status()
    return Timed(1000 * took, response.json())


def compare(front_url: str, upstream_url: str, requests: list[Request]) -> None:
    """What KeyBlock adds, and whether its ranking is the upstream's of the same passages."""
    post(f"{front_url}/rerank", "warm", ["up"])
    rows, same, furthest = [], 0, 0.0
    for query, documents, _ in requests:
        asked = post(f"{front_url}/rerank", query, documents, **ASKED)
        if asked.body["meta"]["degraded"]:
            raise SystemExit(f"the upstream has not scored all: {asked.body['meta']['warnings']}")
        stages, results = asked.body["meta"]["timings_ms"], asked.body["results"]
        passages = [(one["index"], documents[one["index"]][b["start"] : b["end"]]) for one in results for b in one["blocks"]]
        direct = post(upstream_url, query, [text for _, text in passages], raw_scores=True)
        best: dict[int, float] = {}
        for one in direct.body["results"]:
            document = passages[one["index"]][0]
            best[document] = max(best.get(document, float("-inf")), one["relevance_score"])
        found = {one["index"]: one["relevance_score"] for one in results}
        same += sorted(best, key=lambda n: -best[n]) == [one["index"] for one in results]
        furthest = max(furthest, *(abs(found[n] - best[n]) for n in found))
        beside = asked.milliseconds - stages["upstream"]
        rows.append((asked.milliseconds, stages["upstream"], stages["prepare"], beside - stages["prepare"], direct.milliseconds))
    names = ("through KeyBlock", "of it the upstream", "of it preparation", "of it all else", "the same passages, asked directly")
    for name, values in zip(names, zip(*rows, strict=True), strict=True):
        print(f"{name:35} {statistics.median(values):8.1f} ms (median of {len(rows)} queries)")
    print(f"the same order in {same} of {len(requests)} queries; a score differs by {furthest:.5f} logits at most")


def break_it(front_url: str, upstream: Service, port: int, request: Request) -> None:
    """The upstream hangs, is killed, and answers 429: what comes in front of it, and how soon."""
    query, documents, _ = request

    def tell(what: str, **options: Any) -> None:
        answers = [post(f"{front_url}/rerank", query, documents, **options) for _ in range(FAILURES)]
        degraded = sum(one.body["meta"]["degraded"] for one in answers)
        took = [one.milliseconds for one in answers]
        print(f"{what:35} {statistics.median(took):8.1f} ms, {max(took):.1f} at most; {degraded} of {FAILURES} degraded, all 200")

    tell("as usual")
    os.kill(upstream.process.pid, signal.SIGSTOP)
    tell(f"hangs, deadline_ms {DEADLINE_MS}", deadline_ms=DEADLINE_MS)
    tell(f"hangs, no deadline ({PATIENCE} s allowed)")
    upstream.kill()
    tell("killed")
    with busy(port):
        time.sleep(3)  # it is tried again after 2 s
        tell("answers 429, Retry-After 1")
    with Service(1, Path(os.devnull), port=port):
        time.sleep(3)
        tell("back again")


@contextmanager
def busy(port: int) -> Iterator[None]:
    """A server that has no time."""

    class Busy(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["content-length"]))
            self.send_response(429)
            self.send_header("Retry-After", "1")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            return

    with ThreadingHTTPServer(("127.0.0.1", port), Busy) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of an upstream that runs already, which answers as Jina or KeyBlock does")
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--words", type=int, default=2000, help="words of a document")
    main(parser.parse_args())
