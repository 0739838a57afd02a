"""Faults of answers and of preparation: small requests that ask for much work on texts."""

import gzip
import json
import random
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
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
LARGEST_BYTES = 60 * MIB  # of a body: just below the limit
LARGEST_SECONDS = 15.0  # until the client of such a body goes
LARGEST = {  # what its documents are made of
    "prose": "Bridges cross the river, and a boat of 1850 lies under them. ",
    "one-letter words": "a b c d. ",
    "marks": ".,!?;:-()",
    "line ends": "\n",
    "long words": "qjxzvkwyqjxzvkwy" * 6 + " ",
    "one word": "a",
    "marks on letters": "e\u0301o\u0308 ",
    "Chinese": "東京都は日本の首都である。河川の橋は長い",
    "Thai": "ภาษาไทยแม่น้ำและสะพาน ",
    "emoji and joiners": "\U0001f600\u200d",
}
GZIP = {"content-encoding": "gzip"}
MAX_WAIT_SECONDS = 10.0
PATIENCE = 180.0  # seconds
ROUNDS, ROUND_REQUESTS = 8, 8  # of varied requests
CACHE_MIB = 16  # of prepared documents
KEPT_MIB = 320  # that may stay of large requests, beside the cache, see docs/run/size.md


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


def largest_requests(folder: Path) -> str:
    """One request after the other, each a body of 60 MiB of another kind of text, with all that may be asked of it."""
    asked = {
        "query": "river",
        "return_documents": True,
        "return_blocks": True,
        "prune": True,
        "relevant_spans": {"mode": "enabled"},
    }
    worst: dict[str, float] = {}
    statuses: Counter[str] = Counter()
    with drill(folder, store=folder / "store") as it:

        def ask(name: str, method: str, path: str, body: bytes) -> None:
            with watched(it) as record:
                try:
                    length = {"content-length": str(len(body))}
                    answer = httpx.request(
                        method, it.service.url + path, content=_for_a_while(body), headers=length, timeout=LARGEST_SECONDS
                    )
                    statuses[str(answer.status_code)] += 1
                except httpx.TimeoutException:
                    statuses[f"not answered in {LARGEST_SECONDS:g} s"] += 1
            worst[name] = 1000 * max(record.live)
            must(worst[name] < 1000 * MOST_LIVE_SECONDS, f"{name}: {record}")

        for name, unit in LARGEST.items():
            text = unit * (HUGE_CHARS // len(unit))
            documents = [text] * (LARGEST_BYTES // len(json.dumps(text, ensure_ascii=False).encode()))
            body = json.dumps({**asked, "documents": documents}, ensure_ascii=False).encode()
            ask(name, "POST", "/rerank", body)
        short = [LARGEST["prose"] * 450] * 2048
        ask("2,048 documents", "POST", "/rerank", json.dumps({**asked, "documents": short}).encode())
        lines = b"".join(b'{"id": "%d", "text": "%d"}\n' % (n, n) for n in range(LARGEST_BYTES // 34))
        ask("an upload of tiny documents", "PUT", "/documents", lines)
        large = json.dumps({"id": "a", "text": LARGEST["emoji and joiners"] * (HUGE_CHARS // 2)}, ensure_ascii=False).encode()
        ask("an upload of emoji", "PUT", "/documents", b"\n".join([large] * (LARGEST_BYTES // len(large))))
    answers = ", ".join(f"{number} x {what}" for what, number in sorted(statuses.items()))
    return f"{answers}; /health/live at most: {', '.join(f'{name} {ms:.0f} ms' for name, ms in worst.items())}"


def _for_a_while(body: bytes) -> Iterator[bytes]:
    """The pieces of a body that can be sent in LARGEST_SECONDS; raises httpx.WriteTimeout if these are not all."""
    until = time.monotonic() + LARGEST_SECONDS
    for start in range(0, len(body), MIB):
        if time.monotonic() > until:
            raise httpx.WriteTimeout("its client goes")
        yield body[start : start + MIB]


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
    """Rounds of varied requests at once, odd texts and long ones, whose answers nobody reads; then nothing is in flight."""
    with drill(folder, cache_bytes=CACHE_MIB * MIB, max_bytes_in_flight=POD_BYTES) as it:
        before, peak = _settled(it), 0.0
        for number in range(ROUNDS):
            with watched(it) as record:
                _round(it, number)
            peak = max(peak, record.mebibytes)
        left = _settled(it) - before
        must(left < CACHE_MIB + KEPT_MIB, f"{left:.0f} MiB more stay after {ROUNDS} rounds")
        return f"a round of {ROUND_REQUESTS} requests takes {peak:.0f} MiB at most; after {ROUNDS} rounds {left:.0f} MiB more stay"


def _round(it: Drill, number: int) -> None:
    """Requests at once, each of another kind of text; no two rounds have a text in common."""
    draw = random.Random(number)
    alphabet = "".join(chr(draw.randrange(0x20, 0x3000)) for _ in range(60)) + "\u0301\u200d    "
    texts = ["".join(draw.choices(alphabet, k=400_000)) for _ in range(ROUND_REQUESTS // 2)]
    texts += [f"{number} {n} river bridge. " * 150_000 for n in range(ROUND_REQUESTS // 2)]
    threads = [threading.Thread(target=_left_unread, args=(it, text)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def _left_unread(it: Drill, text: str) -> None:
    """Ask for a text's spans and the text itself, and read only the head of the answer."""
    body = {"query": "river", "documents": [text], "return_documents": True, "prune": True}
    with httpx.stream("POST", f"{it.service.url}/rerank", content=json.dumps(body).encode(), timeout=PATIENCE) as answer:
        must(answer.status_code in (200, 429), f"it was answered {answer.status_code}")


def _settled(it: Drill) -> float:
    """Memory once the service has been idle for some seconds, in MiB."""
    time.sleep(2 * PAUSE)
    return mebibytes(it.service.process.pid)
