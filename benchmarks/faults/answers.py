"""Faults of answers and of preparation: small requests that ask for much work on texts."""

import gzip
import json
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import httpx

from benchmarks.faults.bodies import HUGE_CHARS, MIB, mebibytes, watched
from benchmarks.faults.drill import Drill, drill, must, request
from service.memory import PAUSE

BLANK = 205  # line ends between two sentences: too many for one span
CHARS = 20_000  # of a document, all of which were searched for the heading of each span
SMALL_DOCUMENTS, MANY_DOCUMENTS = 19, 100  # a request of 19 is one of less than 400,000 characters
DEADLINE = 1.0  # seconds
POD_BYTES = 256 * MIB  # max_bytes_in_flight of a pod
MOST_LIVE_SECONDS = 0.5  # that /health/live may take
GZIP = {"content-encoding": "gzip"}
MAX_WAIT_SECONDS = 10.0
PATIENCE = 180.0  # seconds
ROUNDS, ROUND_REQUESTS = 6, 8  # of varied requests
KEPT_MIB = 192  # that a service may keep of what it freed, with its caches of small capacity, see docs/sizing.md


def pruned(n_documents: int, **more: object) -> bytes:
    """A gzip of documents with many short sentences far apart, of each of which the heading is asked for."""
    unit = "river.\n" + "\n" * BLANK
    text = (unit * (CHARS // len(unit) + 1))[:CHARS]
    spans = {"mode": "enabled", "threshold": 0.0}
    body = {"query": "river", "documents": [text] * n_documents, "prune": True, "relevant_spans": spans, **more}
    return gzip.compress(json.dumps(body).encode(), 9)


def headings_of_many_spans(folder: Path) -> str:
    """`prune` with a deadline of 1 s, for 100 documents of many sentences far apart."""
    body, scored = pruned(MANY_DOCUMENTS, deadline_ms=1000 * DEADLINE), pruned(MANY_DOCUMENTS)
    with drill(folder, score_cache_bytes=64 * MIB) as it:
        whole, _ = _posted(it, scored)  # the model has scored them: only the answer is left to do
        with watched(it) as record:
            late, seconds = _posted(it, body)
        must((whole.status_code, late.status_code) == (200, 200), f"they were answered {whole.status_code}, {late.status_code}")
        must(seconds < DEADLINE + 1, f"with deadline_ms it was answered after {seconds:.1f} s")
        must(max(record.live) < MOST_LIVE_SECONDS, str(record))
        left = _answered_late(late.json())
        return f"{len(body):,} bytes: 200 after {seconds:.1f} s{left}; {record}"


def _answered_late(answer: dict[str, object]) -> str:
    meta = answer["meta"]
    warnings = [one for one in meta["warnings"] if "spans" in one] if isinstance(meta, dict) else []
    return f", `{warnings[0]}`" if warnings else ""


def small_requests_that_prune(folder: Path) -> str:
    """Four clients send 2 KB that ask for `prune`, again and again."""
    body, statuses, stop = pruned(SMALL_DOCUMENTS), Counter[int](), threading.Event()
    with drill(folder, score_cache_bytes=64 * MIB) as it:
        it.post(request("otter", 3))
        idle = [_small_seconds(it) for _ in range(10)]

        def attack() -> None:
            while not stop.is_set():
                statuses[httpx.post(f"{it.service.url}/rerank", content=body, headers=GZIP, timeout=PATIENCE).status_code] += 1

        threads = [threading.Thread(target=attack) for _ in range(4)]
        for thread in threads:
            thread.start()
        time.sleep(3)
        with watched(it) as record:
            beside = [_small_seconds(it) for _ in range(20)]
        stop.set()
        for thread in threads:
            thread.join()
        must(statistics.median(beside) < 0.5, f"a small request takes {statistics.median(beside):.1f} s")
        must(max(record.live) < MOST_LIVE_SECONDS, str(record))
        answers = ", ".join(f"{number} x {status}" for status, number in sorted(statuses.items()))
        before, after = 1000 * statistics.median(idle), 1000 * statistics.median(beside)
        small = f"a small request takes {before:.0f} ms before and {after:.0f} ms meanwhile"
        return f"{len(body):,} bytes each: {answers}; {small}; {record}"


def terminated_while_nobody_waits(folder: Path) -> str:
    """SIGTERM, after the client of a long answer has left."""
    with drill(folder, score_cache_bytes=64 * MIB) as it:
        must(_posted(it, pruned(MANY_DOCUMENTS))[0].status_code == 200, "it was not answered")
        try:
            httpx.post(f"{it.service.url}/rerank", content=pruned(MANY_DOCUMENTS), headers=GZIP, timeout=0.5)
        except httpx.TimeoutException:
            pass
        started = time.perf_counter()
        it.service.process.terminate()
        code = it.service.process.wait(PATIENCE)
        seconds = time.perf_counter() - started
        must(code == 0, f"the exit code is {code}")
        must(seconds < 5, f"it ended after {seconds:.1f} s")
        return f"exit code 0 after {seconds:.1f} s"


def emoji_and_joiners(folder: Path) -> str:
    """Four documents of 3.9 million emoji and joiners, alone and in four requests at once, with room for 256 MiB in flight."""
    text = "\U0001f600\u200d" * (HUGE_CHARS // 2)
    body = gzip.compress(json.dumps({"query": "river", "documents": [text] * 4}, ensure_ascii=False).encode(), 9)
    with drill(folder, max_bytes_in_flight=POD_BYTES) as it:
        with watched(it) as alone:
            answer, seconds = _posted(it, body)
        must(answer.status_code == 200, f"it was answered {answer.status_code} {answer.text[:200]}")
        outcomes: list[tuple[int, float]] = []

        def ask() -> None:
            given, taken = _posted(it, body)
            outcomes.append((given.status_code, taken))

        threads = [threading.Thread(target=ask) for _ in range(4)]
        with watched(it) as record:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        refused = [taken for status, taken in outcomes if status == 429]
        must(any(status == 200 for status, _ in outcomes), f"none was answered: {outcomes}")
        must(all(taken < MAX_WAIT_SECONDS + 5 for taken in refused), f"refused after {max(refused, default=0):.0f} s")
        must(max(alone.mebibytes, record.mebibytes) < 500, f"{alone}; {record}")
        four = f"{4 - len(refused)} x 200, {len(refused)} x 429 after {max(refused, default=0):.0f} s at most"
        return f"{len(body):,} bytes: 200 after {seconds:.0f} s, {alone}; four at once: {four}, {record}"


def _posted(it: Drill, body: bytes) -> tuple[httpx.Response, float]:
    """The answer to a gzip of a body, and the seconds that it took."""
    started = time.perf_counter()
    return httpx.post(f"{it.service.url}/rerank", content=body, headers=GZIP, timeout=PATIENCE), time.perf_counter() - started


def _small_seconds(it: Drill) -> float:
    return _seconds(lambda: must(it.post(request("otter", 3)).status_code == 200, "a request beside was not answered"))


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def freed_memory(folder: Path) -> str:
    """Rounds of varied requests: unread answers of 3 MB, odd texts, long texts; then nothing is in flight."""
    with drill(folder, cache_bytes=16 * MIB, max_bytes_in_flight=POD_BYTES) as it:
        _round(it, 0)
        settled, peak = _settled(it), 0.0
        for number in range(1, ROUNDS):
            with watched(it) as record:
                _round(it, number)
            peak = max(peak, record.mebibytes)
        left = _settled(it) - settled
        must(left < KEPT_MIB, f"{left:.0f} MiB more stay after {ROUNDS - 1} rounds")
        return f"after {(ROUNDS - 1) * ROUND_REQUESTS} requests, which took {peak:.0f} MiB more at most, {left:.0f} MiB more stay"


def _round(it: Drill, number: int) -> None:
    """Requests at once, each of another kind of text; no two rounds have a text in common."""
    draw = random.Random(number)
    alphabet = "".join(chr(draw.randrange(0x20, 0x3000)) for _ in range(60)) + "\u0301\u200d    "
    odd = ["".join(draw.choices(alphabet, k=150_000)) for _ in range(ROUND_REQUESTS // 2)]
    long = [f"{number} {n} river bridge. " * 150_000 for n in range(ROUND_REQUESTS // 2)]
    bodies = [{"query": "river", "documents": [text], "return_documents": True, "prune": True} for text in odd + long]
    threads = [threading.Thread(target=it.post, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _settled(it: Drill) -> float:
    """Memory once the service has been idle for some seconds, in MiB."""
    time.sleep(2 * PAUSE)
    return mebibytes(it.service.process.pid)
