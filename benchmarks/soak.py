"""Does the service hold up under overload? Sends a mixed load at 150% of its capacity, and checks each answer.

    python -m benchmarks.soak [--minutes 10] [--load 1.5]

Requests come at random times, whether earlier ones are answered or not: small, middling and huge, with and without deadlines,
compressed, malformed, with stored documents by id, and from clients that hang up. Documents are stored again throughout. The
service computes in fp32, so that the scores of an accepted request must equal those of an idle service to 1e-4. A refusal must say
when to come back, and the answer to a malformed request what is wrong. No answer may be a 5xx. A deadline may be missed by the
larger of 50 ms and a batch. Memory must stay within 5% of its size after the first third.
Exits with 1 if a check failed.
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

from benchmarks.harness import BUNDLE, TOLERANCE, largest_difference, store
from keyblock.runtime.cpus import default_threads
from tests.support.serving import Service
from tests.support.texts import Source, invented

KINDS = {"small": (24, 10, 200), "middling": (8, 40, 400), "huge": (2, 400, 500)}  # different requests, documents, words
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
DEADLINES = (50, 150, 400, 1000)  # milliseconds
MALFORMED = (b"{", b"[]", b'{"query": "q"}', b'{"query": 1, "documents": ["a"]}', b'{"query": "q", "documents": []}', b"\xff\xfe")
GROWTH = 1.05
REFUSED_MS, LATE_MS = 20.0, 50.0
GONE_AFTER = 0.05  # seconds


@dataclass(frozen=True)
class Known:
    """A request, and an idle service's answer."""

    body: bytes
    scores: list[float]
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
    """Run it and print the results. Returns the exit code."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "service.log"
        settings = {"bundle": BUNDLE, "precision": "fp32", "cache_bytes": 4 << 20, "max_wait_ms": 3000}
        settings["store"] = Path(folder) / "store"
        with Service(default_threads(), log, **settings) as service:
            source = invented(BUNDLE / "tokenizer.json")
            pool = {kind: [learn(service, source, kind, n) for n in range(number)] for kind, (number, *_) in KINDS.items()}
            tally = Tally()
            print(f"provider: {service.info['provider']['why']}")
            capacity = measure_capacity(service, pool)
            print(f"capacity: {capacity:,.0f} tokens/s; {options.minutes:g} minutes at {options.load:g} times that")
            asyncio.run(soak(service, pool, options.load * capacity, options.minutes * 60, tally))
            tally.check(service.alive, "the service has ended")
    return report(tally)


def learn(service: Service, source: Source, kind: str, number: int) -> Known:
    """A request, and an idle service's answer; its documents are also stored."""
    request = source.request(*KINDS[kind][1:])
    answer = service.rank(request)
    texts = {f"{kind}-{number}-{n}": text for n, text in enumerate(request.documents)}
    body, by_id = (
        json.dumps({"query": request.query, "documents": documents, "strict": True}).encode()
        for documents in (request.documents, store(service.url, texts))
    )
    lines = "\n".join(json.dumps({"id": name, "text": text}) for name, text in texts.items()).encode()
    return Known(body, answer.scores, answer.tokens, lines, by_id)


def measure_capacity(service: Service, pool: dict[str, list[Known]]) -> float:
    """The service's tokens per second for one request after the other."""
    known = [*pool["small"], *pool["middling"]]
    started = time.perf_counter()
    with httpx.Client(base_url=service.url, timeout=600) as client:
        for one in known:
            client.post("/rerank", content=one.body).raise_for_status()
    return sum(one.tokens for one in known) / (time.perf_counter() - started)


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
    """Send one request of a kind, and check its answer: a refusal says when to come back, and other answers are whole and right."""
    known, content, method, path = random.choice(pool.get(kind, pool["small"])), b"", "POST", "/rerank"
    headers, deadline, timeout = {}, random.choice(DEADLINES), 600.0
    if kind == "gone":
        content, timeout = random.choice([*pool["small"], *pool["huge"]]).body, GONE_AFTER
    elif kind == "malformed":
        content = random.choice(MALFORMED)
    elif kind == "hurried":
        content = json.dumps(json.loads(known.body) | {"deadline_ms": deadline}).encode()
    elif kind == "stored":
        content, method, path = known.lines, "PUT", "/documents"
    elif kind == "by id":
        content = known.by_id
    elif random.random() < 0.2:
        content, headers = gzip.compress(known.body, 1), {"content-encoding": "gzip"}
    else:
        content = known.body
    try:
        response = await client.request(method, path, content=content, headers=headers, timeout=timeout)
    except httpx.TransportError as error:
        tally.outcomes[f"{kind} without an answer"] += 1
        tally.check(kind == "gone", f"{kind}: {type(error).__name__} {error}")
        return
    if response.status_code == 429:
        tally.outcomes[f"{kind} refused"] += 1
        tally.milliseconds["refused"].append(1e3 * response.elapsed.total_seconds())
        tally.check(int(response.headers.get("retry-after", 0)) >= 1, f"{kind}: 429 without Retry-After")
        return
    tally.outcomes[f"{kind} answered"] += 1
    allowed = (400, 422) if kind == "malformed" else (200,)
    tally.check(response.status_code in allowed, f"{kind}: {response.status_code} {response.text[:200]}")
    if response.status_code == 200:
        check(kind, known, response.json(), deadline, tally)


def check(kind: str, known: Known, answer: dict[str, Any], deadline: float, tally: Tally) -> None:
    """Check an answer; with a deadline it has all documents, those scored by the model first, and its delay is recorded."""
    if kind == "stored":
        tally.check(answer["stored"] == len(known.scores), f"stored: {answer}")
    elif kind == "hurried":
        results = answer["results"]
        tally.outcomes["hurried: degraded"] += answer["meta"]["degraded"]
        tally.milliseconds["hurried: after the deadline"].append(answer["meta"]["timings_ms"]["total"] - deadline)
        ranks = [("model", "selector", "order").index(result.get("scored_by", "model")) for result in results]
        falling = all(a["relevance_score"] >= b["relevance_score"] for a, b in pairwise(results))
        tally.check(len(results) == len(known.scores) and ranks == sorted(ranks) and falling, "hurried: not whole, or not in order")
    elif kind != "gone":
        tally.milliseconds[kind].append(answer["meta"]["timings_ms"]["total"])
        off = largest_difference(answer, known.scores)
        tally.check(off <= TOLERANCE and not answer["meta"]["degraded"], f"{kind}: scores off by {off:.2g}")


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
    return made


if __name__ == "__main__":
    sys.exit(main(parser().parse_args()))
