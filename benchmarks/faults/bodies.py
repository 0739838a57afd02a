"""Faults of bodies: small ones that ask for much memory or a long time."""

import gzip
import itertools
import json
import os
import random
import statistics
import string
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import zstandard

from benchmarks.faults.drill import Drill, drill, must, request, until

MIB = 2**20
HUGE_CHARS = 3_900_000  # just below the limit of a document
ASKED = 60  # times that one stored document is asked for
PACKED = 16  # requests at once with words of 100 letters
PATIENCE = 20.0  # seconds until their clients go
MOST_LIVE_SECONDS = 5.0  # that /health/live may take beside 16 requests at once
MOST_LIVE_BESIDE_ONE = 0.5  # beside a single one, on two cores
ERRORS = 690_000  # wrong elements in the largest body that is decoded at once
AT_ONCE = 8  # clients that send it
LETTERS = string.ascii_letters + string.digits
MOST_MEBIBYTES = 500  # that a service may grow by


@dataclass
class Watched:
    """Memory and health of a service under a fault.

    Attributes:
        mebibytes: that its memory grew by, at its peak.
        live: seconds that /health/live took, each time.
    """

    mebibytes: float = 0.0
    live: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        return f"memory grows by {self.mebibytes:.0f} MiB, /health/live takes {1000 * max(self.live):.0f} ms at most"


def stored_many_times(folder: Path) -> str:
    """One request asks for the same stored document of 3.9 million characters 60 times."""
    with drill(folder, store=folder / "store", cache_bytes=0) as it:
        line = json.dumps({"id": "huge", "text": "a b c d. " * (HUGE_CHARS // 9)})
        must(it.client.put("/documents", content=line.encode()).status_code == 200, "it cannot be stored")
        it.post({"query": "river", "documents": [{"id": "huge"}]})
        with watched(it) as record:
            answer = it.post({"query": "river", "documents": [{"id": "huge"}] * ASKED})
        must(answer.status_code == 200, f"it was answered {answer.status_code} {answer.text[:200]}")
        must(len({result["relevance_score"] for result in answer.json()["results"]}) == 1, "its scores differ")
        must(record.mebibytes < MOST_MEBIBYTES, str(record))
        return f"200, and all scores are equal; {record}"


def line_of_lists(folder: Path) -> str:
    """One line of PUT /documents: 6 KB of zstd that unpack to 63 MiB of lists."""
    line = zstandard.compress(b'{"id": "a", "text": [' + b"[]," * (21 * MIB) + b"[]]}\n")
    with drill(folder, store=folder / "store") as it:
        with watched(it) as record:
            answer = it.client.put("/documents", content=line, headers={"content-encoding": "zstd"})
        must(answer.status_code == 422, f"it was answered {answer.status_code}")
        must(record.mebibytes < MOST_MEBIBYTES, str(record))
        return f"{len(line):,} bytes: 422 `{answer.json()['message']}`; {record}"


def words_of_100_letters(folder: Path) -> str:
    """16 requests at once, each a few KB of zstd that unpack to 3.9 million characters in words of 100 letters."""
    letters = random.Random(1)
    words = ["".join(letters.choices("qjxzvkwy", k=100)) for _ in range(50)]
    body = json.dumps({"query": "river", "documents": [" ".join(words * (HUGE_CHARS // 101 // len(words)))]}).encode()
    packed = zstandard.compress(body)
    with drill(folder) as it:
        statuses: Counter[str] = Counter()
        threads = [threading.Thread(target=_attack, args=(it.service.url, packed, statuses)) for _ in range(PACKED)]
        with watched(it) as record:
            for thread in threads:
                thread.start()
            others = [_seconds(it) for _ in range(10)]
            for thread in threads:
                thread.join()
        late = _seconds(it)
        must(max(record.live) < MOST_LIVE_SECONDS, str(record))
        answers = ", ".join(f"{number} x {what}" for what, number in sorted(statuses.items()))
        beside, after = 1000 * statistics.median(others), 1000 * late
        small = f"meanwhile a small request takes {beside:.0f} ms, and afterwards {after:.0f} ms"
        return f"{len(packed):,} bytes each: {answers}; {small}; {record}"


def errors_without_end(folder: Path) -> str:
    """One request, then eight at once: 690,000 empty strings as `first_stage_scores`, in 2 KB of gzip."""
    body = gzip.compress(_with_option("first_stage_scores", json.dumps([""] * ERRORS, separators=(",", ":"))))
    with drill(folder) as it:
        with watched(it) as alone:
            answer = it.client.post("/rerank", content=body, headers={"content-encoding": "gzip"})
        must(answer.status_code == 422, f"it was answered {answer.status_code}")
        must(max(alone.live) < MOST_LIVE_BESIDE_ONE, str(alone))
        statuses: Counter[str] = Counter()
        with watched(it) as together:
            threads = [
                threading.Thread(target=_attack, args=(it.service.url, body, statuses, 60.0, "gzip")) for _ in range(AT_ONCE)
            ]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        must(statuses == {"422": AT_ONCE}, f"they were answered {dict(statuses)}")
        return f"{len(body):,} bytes: 422 `{answer.json()['message']}`; {alone}; of {AT_ONCE} at once: {together}"


def options_of_another_size(folder: Path) -> str:
    """One request each: 225,000 unknown parameters of a fusion, as many unknown fields, and 57 MB of numbers in 60 fields."""
    names = ["".join(name) for name in itertools.islice(itertools.product(LETTERS, repeat=3), 225_000)]
    members = json.dumps({"name": "mapfuse", **dict.fromkeys(names, 0)}, separators=(",", ":"))
    numbers = b",".join(b'"x%d":[%b1]' % (n, b"1e5," * 240_000) for n in range(60))
    asked = {
        "parameters": _with_option("fusion", members),
        "fields": b'{"query":"river","documents":["the river"],' + members[1:].encode(),
        "numbers": b'{"query":"river","documents":["the river"],' + numbers + b"}",
    }
    found = []
    with drill(folder) as it:
        for name, body in asked.items():
            with watched(it) as record:
                answer = it.client.post("/rerank", content=body)
            found.append(f"{name}: {answer.status_code}; {record}")
            must(answer.status_code == 422, "; ".join(found))
            must(max(record.live) < MOST_LIVE_BESIDE_ONE and record.mebibytes < MOST_MEBIBYTES, "; ".join(found))
    return "; ".join(found)


def tiny_frames(folder: Path) -> str:
    """60 MiB of zstd frames of nine bytes, to PUT /documents and to POST /rerank."""
    body = zstandard.compress(b"") * (60 * MIB // 9)
    found = []
    with drill(folder, store=folder / "store") as it:
        for method, path in (("PUT", "/documents"), ("POST", "/rerank")):
            before = _processor_seconds(it)
            with watched(it) as record:
                answer = it.client.request(method, path, content=body, headers={"content-encoding": "zstd"})
            spent = _processor_seconds(it) - before
            found.append(f"{method}: {answer.status_code} after {spent:.1f} s of processor time, {record}")
            must(answer.status_code == 400 and spent < 10, "; ".join(found))
            must(max(record.live) < MOST_LIVE_BESIDE_ONE, "; ".join(found))
    return "; ".join(found)


def _with_option(name: str, value: str) -> bytes:
    """A request with an option that is JSON already."""
    return f'{{"query":"river","documents":["the river"],"{name}":{value}}}'.encode()


def _processor_seconds(it: Drill) -> float:
    """Seconds that the service's process has had of processors, its health checks included."""
    user, system = Path(f"/proc/{it.service.process.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def _attack(url: str, packed: bytes, statuses: Counter[str], seconds: float = PATIENCE, encoding: str = "zstd") -> None:
    try:
        headers = {"content-encoding": encoding}
        statuses[str(httpx.post(f"{url}/rerank", content=packed, headers=headers, timeout=seconds).status_code)] += 1
    except httpx.TimeoutException:
        statuses[f"not answered in {seconds:g} s"] += 1


def _seconds(it: Drill) -> float:
    started = time.perf_counter()
    must(it.post(request("otter", 3)).status_code == 200, "a request beside was not answered")
    return time.perf_counter() - started


@contextmanager
def watched(it: Drill) -> Iterator[Watched]:
    """Watch the memory of the service and ask for its health until the block ends."""
    record, stop = Watched(), threading.Event()
    before = mebibytes(it.service.process.pid)

    def watch() -> None:
        with httpx.Client(base_url=it.service.url, timeout=120) as client:
            over = False
            while not over:
                started = time.perf_counter()
                client.get("/health/live")
                record.live.append(time.perf_counter() - started)
                record.mebibytes = max(record.mebibytes, mebibytes(it.service.process.pid) - before)
                over = stop.wait(0.02)

    thread = threading.Thread(target=watch)
    thread.start()
    until(lambda: record.live, "its health is known")
    try:
        yield record
    finally:
        stop.set()
        thread.join()


def mebibytes(pid: int) -> float:
    """The memory of a process, in MiB."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024
