"""Does the service hold up under overload? Sends a mixed load at 150% of its capacity, and checks each answer.

    python -m benchmarks.soak [--minutes 10] [--load 1.5] [--bundle models/default]

Requests come at random times, whether earlier ones are answered or not: small, middling and huge, with and without deadlines,
compressed, malformed, with stored documents by id, and from clients that hang up. Documents are stored again throughout. The
service computes in fp32, so that the scores of an accepted request must equal those of an idle service to 1e-4. A refusal must say
when to come back, and the answer to a malformed request what is wrong. No answer may be a 5xx. A deadline may be missed by the
larger of 50 ms and a batch. Memory must stay within 5% of its size after the first third. Before the soak, the program measures how
long a small request takes beside a huge one, as a multiple of its time alone. Exits with 1 if a check failed.
"""

import argparse
import asyncio
import gzip
import json
import random
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from keyblock.runtime.cpus import default_threads
from tests.support.serving import Service
from tests.support.texts import Source, invented

ROOT = Path(__file__).resolve().parent.parent
KINDS = {"small": (10, 200), "middling": (40, 400), "huge": (400, 500)}  # documents, words
SHARES = {
    "small": 0.47,
    "by id": 0.12,
    "middling": 0.16,
    "huge": 0.02,
    "hurried": 0.12,
    "stored": 0.03,
    "malformed": 0.04,
    "gone": 0.04,
}
POOL = {"small": 24, "middling": 8, "huge": 2}  # different requests of each kind
DEADLINES = (50, 150, 400, 1000)  # milliseconds
MALFORMED = (b"{", b"[]", b'{"query": "q"}', b'{"query": 1, "documents": ["a"]}', b'{"query": "q", "documents": []}', b"\xff\xfe")
TOLERANCE, GROWTH, FAIR = 1e-4, 1.05, 3.0
REFUSED_MS, LATE_MS = 20.0, 50.0
GONE_AFTER = 0.05  # seconds
IDLE_RUNS, FAIR_SECONDS = 20, 20


@dataclass(frozen=True)
class Known:
    """A request, and an idle service's answer."""

    body: bytes
    scores: dict[int, float]
    tokens: int
    lines: bytes
    by_id: bytes


@dataclass
class Tally:
    """The outcomes of requests, and the problems found."""

    outcomes: Counter[str] = field(default_factory=Counter)
    milliseconds: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    wrong: list[str] = field(default_factory=list)
    resident: list[int] = field(default_factory=list)

    def check(self, good: bool, problem: str) -> None:
        """Record the problem unless the check is good."""
        if not good:
            self.wrong.append(problem)


def main(options: argparse.Namespace) -> int:
    """Run both parts and print the results. Returns the exit code."""
    threads = default_threads()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "service.log"
        settings = {"bundle": options.bundle, "precision": "fp32", "cache_bytes": 4 << 20, "max_wait_ms": options.max_wait_ms}
        settings["store"] = Path(folder) / "store"
        with Service(threads, log, **settings) as service:
            source = invented(options.bundle / "tokenizer.json")
            pool = {kind: [learn(service, source, kind, n) for n in range(number)] for kind, number in POOL.items()}
            tally = Tally()
            print(f"provider: {service.info['provider']['why']}; {threads} threads")
            fairness(service, pool, tally)
            capacity = measure_capacity(service, pool)
            print(
                f"capacity: {capacity:,.0f} tokens/s; load: {options.load * capacity:,.0f} tokens/s for {options.minutes} minutes"
            )
            asyncio.run(soak(service, pool, options.load * capacity, options.minutes * 60, tally))
            tally.check(service.alive, "the service has ended")
    return report(tally)


def learn(service: Service, source: Source, kind: str, number: int) -> Known:
    """A request, and an idle service's answer; its documents are also stored."""
    request = source.request(*KINDS[kind])
    answer = service.rank(request)
    names = [f"{kind}-{number}-{n}" for n in range(len(request.documents))]
    lines = b"".join(json.dumps({"id": i, "text": text}).encode() + b"\n" for i, text in zip(names, request.documents, strict=True))
    httpx.put(f"{service.url}/documents", content=lines, timeout=600).raise_for_status()
    body = json.dumps({"query": request.query, "documents": request.documents}).encode()
    by_id = json.dumps({"query": request.query, "documents": [{"id": name} for name in names], "strict": True}).encode()
    return Known(body, dict(enumerate(answer.scores)), answer.tokens, lines, by_id)


def measure_capacity(service: Service, pool: dict[str, list[Known]]) -> float:
    """The service's tokens per second for one request after the other."""
    known = [*pool["small"], *pool["middling"]]
    started = time.perf_counter()
    with httpx.Client(base_url=service.url, timeout=600) as client:
        for one in known:
            client.post("/rerank", content=one.body).raise_for_status()
    return sum(one.tokens for one in known) / (time.perf_counter() - started)


def fairness(service: Service, pool: dict[str, list[Known]], tally: Tally) -> None:
    """Measure how long a small request takes beside huge ones, as a multiple of its time alone."""
    idle, beside = asyncio.run(_fairness(service, pool))
    alone, p99 = 1e3 * np.median(idle), 1e3 * np.quantile(beside, 0.99)
    print(f"small request: {alone:.0f} ms alone, p99 {p99:.0f} ms beside huge ones: {p99 / alone:.1f}x")
    tally.check(
        p99 / alone <= FAIR, f"a small request takes {p99 / alone:.1f} times as long beside a huge one; {FAIR:g} is the bound"
    )


async def _fairness(service: Service, pool: dict[str, list[Known]]) -> tuple[list[float], list[float]]:
    small, huge = pool["small"], pool["huge"]
    async with httpx.AsyncClient(base_url=service.url, timeout=600) as client:

        async def timed(known: Known) -> float:
            started = time.perf_counter()
            (await client.post("/rerank", content=known.body)).raise_for_status()
            return time.perf_counter() - started

        async def load() -> None:
            while True:
                await timed(random.choice(huge))

        idle = [await timed(small[n % len(small)]) for n in range(IDLE_RUNS)]
        loading, beside = asyncio.create_task(load()), []
        until = time.perf_counter() + FAIR_SECONDS
        while time.perf_counter() < until:
            await asyncio.sleep(random.random() / 10)
            beside.append(await timed(random.choice(small)))
        loading.cancel()
    return idle, beside


async def soak(service: Service, pool: dict[str, list[Known]], tokens_a_second: float, seconds: float, tally: Tally) -> None:
    """Send requests as a Poisson process with this mean of tokens per second."""
    mean = sum(share * statistics.mean(one.tokens for one in pool.get(kind, pool["small"])) for kind, share in SHARES.items())
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=100)
    under_way: set[asyncio.Task[None]] = set()
    async with httpx.AsyncClient(base_url=service.url, timeout=600, limits=limits) as client:
        until, read = time.perf_counter() + seconds, 0.0
        while (now := time.perf_counter()) < until:
            kind = random.choices(list(SHARES), list(SHARES.values()))[0]
            task = asyncio.create_task(send(client, kind, pool, tally))
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            if now > read:
                tally.resident.append(service.resident())
                read = now + seconds / 60
            await asyncio.sleep(random.expovariate(tokens_a_second / mean))
        await asyncio.gather(*under_way)
        tally.resident.append(service.resident())


async def send(client: httpx.AsyncClient, kind: str, pool: dict[str, list[Known]], tally: Tally) -> None:
    """Send one request of a kind and check its answer."""
    known = random.choice(pool.get(kind, pool["small"]))
    try:
        if kind == "gone":
            await hang_up(client, random.choice([*pool["small"], *pool["huge"]]), tally)
        elif kind == "malformed":
            check_malformed(await client.post("/rerank", content=random.choice(MALFORMED)), tally)
        elif kind == "hurried":
            deadline = random.choice(DEADLINES)
            body = json.dumps(json.loads(known.body) | {"deadline_ms": deadline}).encode()
            check_hurried(await client.post("/rerank", content=body), known, deadline, tally)
        elif kind == "by id":
            check_scores(await client.post("/rerank", content=known.by_id), kind, known, tally)
        elif kind == "stored":
            check_stored(await client.put("/documents", content=known.lines), known, tally)
        else:
            packed = random.random() < 0.2
            content = gzip.compress(known.body, 1) if packed else known.body
            response = await client.post("/rerank", content=content, headers={"content-encoding": "gzip"} if packed else {})
            check_scores(response, kind, known, tally)
    except httpx.TransportError as error:
        tally.wrong.append(f"{kind}: {type(error).__name__} {error}")


async def hang_up(client: httpx.AsyncClient, known: Known, tally: Tally) -> None:
    """Send a request and hang up before the answer."""
    try:
        await client.post("/rerank", content=known.body, timeout=GONE_AFTER)
    except httpx.TimeoutException:
        pass
    tally.outcomes["gone"] += 1


def refused(response: httpx.Response, kind: str, tally: Tally) -> bool:
    """Whether the request was refused with 429; also checks the Retry-After header."""
    if response.status_code != 429:
        return False
    tally.outcomes[f"{kind} refused"] += 1
    tally.milliseconds["refused"].append(1e3 * response.elapsed.total_seconds())
    tally.check(int(response.headers.get("retry-after", 0)) >= 1, f"{kind}: 429 without Retry-After")
    return True


def check_malformed(response: httpx.Response, tally: Tally) -> None:
    """Check that a malformed request gets 400 or 422, unless it was refused unread."""
    if not refused(response, "malformed", tally):
        tally.outcomes["malformed, refused"] += 1
        tally.check(response.status_code in (400, 422), f"malformed: {response.status_code} {response.text[:200]}")


def check_stored(response: httpx.Response, known: Known, tally: Tally) -> None:
    """Check that all documents were stored."""
    if not refused(response, "stored", tally):
        tally.outcomes["stored again"] += 1
        whole = response.status_code == 200 and response.json()["stored"] == len(known.scores)
        tally.check(whole, f"stored: {response.status_code} {response.text[:200]}")


def check_scores(response: httpx.Response, kind: str, known: Known, tally: Tally) -> None:
    """Check that an accepted request has the scores of an idle service."""
    if refused(response, kind, tally):
        return
    tally.outcomes[f"{kind} answered"] += 1
    if response.status_code != 200:
        tally.wrong.append(f"{kind}: {response.status_code} {response.text[:200]}")
        return
    answer = response.json()
    tally.milliseconds[kind].append(answer["meta"]["timings_ms"]["total"])
    off = max(abs(result["relevance_score"] - known.scores[result["index"]]) for result in answer["results"])
    whole = len(answer["results"]) == len(known.scores) and not answer["meta"]["degraded"]
    tally.check(whole and off <= TOLERANCE, f"{kind}: {len(answer['results'])} results, scores off by {off:.2g}")


def check_hurried(response: httpx.Response, known: Known, deadline: float, tally: Tally) -> None:
    """Check that the answer has all documents, those scored by the model first, and record its delay after the deadline."""
    if refused(response, "hurried", tally):
        return
    if response.status_code != 200:
        tally.wrong.append(f"hurried: {response.status_code} {response.text[:200]}")
        return
    answer: dict[str, Any] = response.json()
    results = answer["results"]
    tally.outcomes["hurried degraded" if answer["meta"]["degraded"] else "hurried in full"] += 1
    tally.milliseconds["hurried: after the deadline"].append(answer["meta"]["timings_ms"]["total"] - deadline)
    ranks = [("model", "selector", "order").index(result.get("scored_by", "model")) for result in results]
    falling = all(a["relevance_score"] >= b["relevance_score"] for a, b in pairwise(results))
    tally.check(len(results) == len(known.scores) and ranks == sorted(ranks) and falling, "hurried: not whole, or not in order")


def report(tally: Tally) -> int:
    """Print the counts, the times, the memory and the problems. Returns the exit code."""
    late = tally.milliseconds.get("hurried: after the deadline", [])
    slow = tally.milliseconds.get("refused", [])
    for what, values, bound in (("answered after its deadline", late, LATE_MS), ("refused", slow, REFUSED_MS)):
        if values and (p99 := float(np.quantile(values, 0.99))) > bound:
            tally.wrong.append(f"p99 of a request {what} is {p99:.0f} ms; the bound is {bound:g}")
    settled = tally.resident[len(tally.resident) // 3]
    growth = max(tally.resident[len(tally.resident) // 3 :]) / settled
    tally.check(growth <= GROWTH, f"memory grew to {growth:.3f} of what it was after a third of the time")
    print("\n".join(f"{number:7,} {outcome}" for outcome, number in sorted(tally.outcomes.items())))
    for kind, values in sorted((kind, values) for kind, values in tally.milliseconds.items() if values):
        print(
            f"{kind}: p50 {np.quantile(values, 0.5):,.0f} ms, p99 {np.quantile(values, 0.99):,.0f} ms, most {max(values):,.0f} ms"
        )
    print(f"memory: {settled / 1e6:,.0f} MB after a third of the time, at most {growth:.3f} of it later")
    print("\n".join(f"WRONG ({number}): {problem}" for problem, number in Counter(tally.wrong).most_common(20)) or "all held")
    return 1 if tally.wrong else 0


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--minutes", type=float, default=10)
    made.add_argument("--load", type=float, default=1.5, help="of the capacity, which is measured first")
    made.add_argument("--max-wait-ms", type=int, default=3000, help="waiting work beyond which requests are refused")
    made.add_argument("--bundle", type=Path, default=ROOT / "models" / "default")
    return made


if __name__ == "__main__":
    sys.exit(main(parser().parse_args()))
