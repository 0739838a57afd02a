"""KeyBlock in front of another reranker, the upstream: the time that it adds, and its answers when the upstream fails.

    python -m benchmarks.upstream [--url http://HOST:PORT/rerank] [--queries 20] [--documents 20] [--words 2000]
    python -m benchmarks.upstream --infinity MODEL --import BUNDLE --collection ../shared/data/squad-far --queries 100 --documents 5

The upstream is another keyblock-serve on the embedded bundle, infinity-emb's own server on a checkpoint, or a server at --url. Each
query is ranked through KeyBlock. Then the upstream ranks the same passages directly, and both rankings are compared. With --import
the same query is also ranked by the same checkpoint's bundle in this process; each ranking that differs is printed. An upstream
that was started here is then made to fail: it is busy (a proxy answers 429), slower than the deadline, stopped with SIGSTOP,
killed, and started again. KeyBlock's answers are timed throughout.
"""

import argparse
import os
import signal
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from benchmarks.busy_proxy import BusyProxy
from benchmarks.event_loop import free_port
from benchmarks.performance.peers import INFINITY, Server, python_of
from benchmarks.performance.service import Service
from benchmarks.performance.texts import Request, invented
from keyblock.ranker import Ranker
from service.settings import DEFAULT_BUNDLE
from training.collections.collection import Collection
from training.evaluation.evaluate import sample

SECONDS, PATIENCE = 60, 5  # timeout of an answer; timeout of the upstream in the failures
FIELDS = {"raw_scores": True, "return_blocks": True}
DEADLINE_MS = 100  # less than the time of any upstream here
FAILURES = 5  # requests during each failure
ALWAYS = 1_000_000
AWAY = 3  # seconds after which the upstream is tried again
TOLERANCE = 1e-3  # a larger difference of logits is not explained by fp32


class Timed(NamedTuple):
    """An answer, and the milliseconds from sending to it."""

    milliseconds: float
    body: dict[str, Any]


class Infinity:
    """infinity-emb's server with one thread, in place of a Service."""

    def __init__(self, model: Path, peers: Path, log: Path, port: int) -> None:
        self._server = Server(python_of(INFINITY, peers), model, 1, log, port)
        self.process = self._server.process

    def kill(self) -> None:
        """Kill the process, as a machine's failure would."""
        self.process.kill()
        self.process.wait()


Upstream = Service | Infinity


def main(options: argparse.Namespace) -> None:
    """Measure and print."""
    requests = requests_of(options)
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        logs, imported = Path(directory), None
        if options.imported:
            imported = stack.enter_context(Ranker.open(options.imported, provider="cpu", precision="fp32", threads=1))
        if options.url:
            with front(logs, options.url, SECONDS) as service:
                compare(service.url, options.url, requests, imported)
            return
        port = free_port()
        url = f"http://127.0.0.1:{port}/rerank"

        def start() -> Upstream:
            log = logs / "upstream"
            return Infinity(options.infinity, options.peers, log, port) if options.infinity else Service(1, log, port=port)

        upstream = start()
        stack.callback(upstream.kill)
        with front(logs, url, SECONDS) as service:
            compare(service.url, url, requests, imported)
        with BusyProxy(url) as proxy, front(logs, proxy.url, PATIENCE) as service:
            measure_busy(service.url, proxy, requests[0])
        with front(logs, url, PATIENCE) as service:
            measure_failures(service.url, upstream, start, requests[0])


def requests_of(options: argparse.Namespace) -> list[Request]:
    """Invented queries and documents, or those of a collection's test split."""
    if options.collection is None:
        source = invented(DEFAULT_BUNDLE / "tokenizer.json")
        return [source.request(options.documents, options.words) for _ in range(options.queries)]
    collection, requests = Collection(options.collection), []
    run = collection.run("test")
    for query in sample(sorted(run), options.queries):
        documents = [collection.document(one) for one in list(run[query])[: options.documents]]
        requests.append(Request(collection.query(query), [f"{one.title}\n{one.text}".strip() for one in documents], 0))
    return requests


@contextmanager
def front(logs: Path, url: str, seconds: int) -> Iterator[Service]:
    """KeyBlock in front of the upstream, with a timeout of `seconds` for it."""
    with Service(1, logs / "front", upstream=url, upstream_timeout_ms=1000 * seconds) as service:
        yield service


@cache
def client() -> httpx.Client:
    """The client of all requests: to create one takes tens of milliseconds."""
    return httpx.Client(timeout=SECONDS)


def post(url: str, query: str, documents: list[str], **options: Any) -> Timed:
    """Send a request. Raises HTTPStatusError unless it is answered with 200."""
    started = time.perf_counter()
    response = client().post(url, json={"query": query, "documents": documents, **options})
    took = time.perf_counter() - started
    response.raise_for_status()
    return Timed(1000 * took, response.json())


def compare(front_url: str, upstream_url: str, requests: list[Request], imported: Ranker | None) -> None:
    """Print the time that KeyBlock adds, and how its rankings agree with the upstream's of the same passages and the import's."""
    post(f"{front_url}/rerank", "warm", ["up"])
    rows, direct, by_import = [], Agreement("the same passages, asked directly"), Agreement("the import")
    for query, documents, _ in requests:
        answer = post(f"{front_url}/rerank", query, documents, **FIELDS)
        if answer.body["meta"]["degraded"]:
            raise SystemExit(f"the upstream has not scored all: {answer.body['meta']['warnings']}")
        stages, results = answer.body["meta"]["timings_ms"], answer.body["results"]
        found = {one["index"]: one["relevance_score"] for one in results}
        passages = [(one["index"], documents[one["index"]][b["start"] : b["end"]]) for one in results for b in one["blocks"]]
        alone = post(upstream_url, query, [text for _, text in passages], raw_scores=True)
        best: dict[int, float] = {}
        for one in alone.body["results"]:
            document = passages[one["index"]][0]
            best[document] = max(best.get(document, float("-inf")), one["relevance_score"])
        direct.add(query, found, best)
        if imported is not None:
            own = imported.rank(query, documents, raw_scores=True)
            by_import.add(query, found, {one.index: one.relevance_score for one in own})
        rest = answer.milliseconds - stages["upstream"] - stages["prepare"]
        rows.append((answer.milliseconds, stages["upstream"], stages["prepare"], rest, alone.milliseconds))
    names = ("through KeyBlock", "of it the upstream", "of it preparation", "of it all else", "the same passages, asked directly")
    for name, values in zip(names, zip(*rows, strict=True), strict=True):
        highest = sorted(values)[int(0.9 * len(values))]
        print(f"{name:35} {statistics.median(values):8.1f} ms (median of {len(rows)} queries; nine of ten under {highest:.1f})")
    for one in (direct, by_import):
        if one.queries:
            print(one)


class Agreement:
    """Counts the queries with equal rankings and the largest difference of scores; prints each query that differs."""

    def __init__(self, name: str) -> None:
        self.name, self.queries, self._same, self._furthest = name, 0, 0, 0.0

    def add(self, query: str, found: dict[int, float], expected: dict[int, float]) -> None:
        """Compare the logits of one query's documents; `found` is best first."""
        apart = max(abs(found[n] - expected[n]) for n in found)
        same = sorted(expected, key=lambda n: -expected[n]) == list(found)
        self.queries += 1
        self._same += same
        self._furthest = max(self._furthest, apart)
        if not same or apart > TOLERANCE:
            pairs = [
                f"{n}: {found[n]:.5f}, {expected[n]:.5f}" for n in found if abs(found[n] - expected[n]) > TOLERANCE or not same
            ]
            print(f"{self.name}, {query!r}: the same order: {same}; logits by document {'; '.join(pairs)}", flush=True)

    def __str__(self) -> str:
        return (
            f"{self.name}: the same order in {self._same} of {self.queries} queries; "
            f"a score differs by {self._furthest:.1e} logits at most"
        )


def measure_case(name: str, front_url: str, request: Request, before: Callable[[], None] | None = None, **options: Any) -> None:
    """Send a request a few times, each time after `before`, and print the times and the answers' warnings."""
    answers = []
    for _ in range(FAILURES):
        if before is not None:
            before()
        answers.append(post(f"{front_url}/rerank", request.query, request.documents, **options))
    degraded = sum(one.body["meta"]["degraded"] for one in answers)
    took = [one.milliseconds for one in answers]
    warnings = {warning for one in answers for warning in one.body["meta"]["warnings"]}
    line = f"{name:35} {statistics.median(took):8.1f} ms, {max(took):.1f} at most; {degraded} of {FAILURES} degraded, all 200"
    print(line, *sorted(warnings), sep="\n    ", flush=True)


def measure_busy(front_url: str, proxy: BusyProxy, request: Request) -> None:
    """Measure while the upstream answers 429 once in each request, and then always."""
    measure_case("as usual, behind the proxy", front_url, request)
    for name, times in (("once", 1), ("always", ALWAYS)):
        measure_case(f"answers 429 {name}, Retry-After 1", front_url, request, partial(setattr, proxy, "busy", times))


def measure_failures(front_url: str, upstream: Upstream, start: Callable[[], Upstream], request: Request) -> None:
    """Measure while the upstream is slow, hangs, is killed and comes back."""
    measure_case("as usual", front_url, request)
    measure_case(f"slower than deadline_ms {DEADLINE_MS}", front_url, request, deadline_ms=DEADLINE_MS)
    os.kill(upstream.process.pid, signal.SIGSTOP)
    measure_case(f"hangs, deadline_ms {DEADLINE_MS}", front_url, request, deadline_ms=DEADLINE_MS)
    measure_case(f"hangs, no deadline ({PATIENCE} s allowed)", front_url, request)
    upstream.kill()
    time.sleep(AWAY)
    measure_case("killed", front_url, request)
    again = start()
    try:
        time.sleep(AWAY)
        measure_case("back again", front_url, request)
    finally:
        again.kill()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", help="of an upstream that runs already, which answers as Jina or KeyBlock does")
    parser.add_argument("--infinity", type=Path, metavar="MODEL", help="a checkpoint for infinity-emb's server, which is installed")
    parser.add_argument("--peers", type=Path, default=Path("build/peers"), help="keeps its environment")
    parser.add_argument(
        "--import", dest="imported", type=Path, metavar="BUNDLE", help="what keyblock-import made of that checkpoint"
    )
    parser.add_argument("--collection", type=Path, help="takes queries and documents from its test split; else they are invented")
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--words", type=int, default=2000, help="words of a document")
    main(parser.parse_args())
