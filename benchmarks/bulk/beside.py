"""Ranks the same lists with the service and with keyblock-bulk, in turns: pairs a second, and differences of scores.

A rate is of pairs of query and document. What a command costs before its first pair, which it costs once, is measured by a job of
one pair and taken off. CPU seconds are of all processes; on a machine that does other work too, they are the steadier figure.
"""

import gzip
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import psutil
import pyarrow.parquet as pq

from benchmarks.performance.service import Service

BUNDLE = Path(__file__).resolve().parents[2] / "models" / "default"
MIB = 1 << 20
TOLERANCE = 1e-4
KINDS = {"bulk.cli": "driver", "spawn_main": "worker", "MapWorker": "worker of Ray", "raylet": "raylet", "gcs_server": "GCS"}
SERVICE = "service, 1 thread"
COMMANDS = {
    "1 worker": ("--workers", "1"),
    "2 workers": ("--workers", "2"),
    "Ray, 1 worker": ("--engine", "ray", "--workers", "1"),
    "Ray, 2 workers": ("--engine", "ray", "--workers", "2"),
}

List = dict[str, Any]
Scores = dict[tuple[str, str], float]
"""Names of a query and a document."""


class Ran(NamedTuple):
    """The time and the scores of ranking all lists.

    Attributes:
        wall: seconds by the clock.
        cpu: CPU seconds of all processes; on Ray only of the driver, since the workers are not its children.
        scores: score of every pair.
        resident: highest MiB of a process, by kind; empty for the service.
    """

    wall: float
    cpu: float
    scores: Scores
    resident: dict[str, float]


class DifferentScoresError(RuntimeError):
    """The command and the service give different scores. The message is one line."""


def read_lists(data: Path, queries: int) -> list[List]:
    """The first lists of the dev run, each with its texts."""
    texts, query_texts = ({row["_id"]: row["text"] for row in _rows(data / f"{name}.jsonl.gz")} for name in ("corpus", "queries"))
    run: dict[str, list[str]] = {}
    with gzip.open(data / "run.dev.bm25.trec.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            qid, _, docid, *_ = line.split()
            run.setdefault(qid, []).append(docid)
    first = list(run.items())[:queries]
    return [
        {"qid": qid, "query": query_texts[qid], "documents": [{"docid": one, "text": texts[one]} for one in found]}
        for qid, found in first
    ]


def _rows(path: Path) -> Iterator[dict[str, str]]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        yield from map(json.loads, lines)


def pairs_of(lists: Sequence[List]) -> int:
    """The number of pairs of a query and a document."""
    return sum(len(one["documents"]) for one in lists)


def ask(service: Service, lists: Sequence[List]) -> Ran:
    """Rank all lists with the service, one after the other, over HTTP."""
    process, began, scores = psutil.Process(service.process.pid), time.perf_counter(), Scores()
    before = sum(process.cpu_times()[:2])
    with httpx.Client(base_url=service.url, timeout=600) as client:
        for one in lists:
            documents = [{"id": document["docid"], "text": document["text"]} for document in one["documents"]]
            answer = client.post("/rerank", json={"query": one["query"], "documents": documents}).raise_for_status()
            scores |= {(one["qid"], result["id"]): result["relevance_score"] for result in answer.json()["results"]}
    return Ran(time.perf_counter() - began, sum(process.cpu_times()[:2]) - before, scores, {})


def write_lists(lists: Sequence[List], path: Path) -> Path:
    """Write the lists as JSON lines."""
    path.write_text("".join(json.dumps(one) + "\n" for one in lists), encoding="utf-8")
    return path


def rank(lists: Sequence[List], work: Path, *options: str) -> Ran:
    """Rank all lists with the command. Ends the program if the command fails."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        given, out = write_lists(lists, Path(folder, "lists.jsonl")), Path(folder, "out")
        command = [sys.executable, "-m", "bulk.cli", "--lists", str(given), "--bundle", str(BUNDLE), "--out", str(out)]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        most: dict[str, float] = {}
        with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
            watch = threading.Thread(target=_watch, args=(process, most))
            watch.start()
            _, output = process.communicate()
            watch.join()
        if process.returncode:
            sys.exit(output)
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
        print(f"{pairs_of(lists)} pairs with {' '.join(options)}: {wall:.1f} s", file=sys.stderr, flush=True)
        rows = [
            row
            for path in out.glob("rankings-*.parquet")
            for row in pq.read_table(path, columns=["qid", "docid", "score"]).to_pylist()
        ]
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Ran(wall, cpu, {(row["qid"], row["docid"]): row["score"] for row in rows}, most)


def _watch(process: "subprocess.Popen[str]", most: dict[str, float]) -> None:
    driver = psutil.Process(process.pid)
    while process.poll() is None:
        with suppress(psutil.Error):  # a process may have ended meanwhile
            for one in (driver, *driver.children(recursive=True)):
                line = " ".join(one.cmdline())
                for kind in (name for part, name in KINDS.items() if part in line):
                    most[kind] = max(most.get(kind, 0.0), one.memory_info().rss / MIB)
        time.sleep(0.2)


def largest_difference(expected: Scores, found: Scores) -> float:
    """The largest difference between two scores of a pair. Raises DifferentScoresError if it is too large or the pairs differ."""
    if expected.keys() != found.keys():
        raise DifferentScoresError(
            f"the service scored {len(expected)} pairs, and keyblock-bulk {len(found)}, not all of them the same"
        )
    largest = max(abs(expected[pair] - score) for pair, score in found.items())
    if largest > TOLERANCE:
        raise DifferentScoresError(f"a score differs by {largest:.2g} from the service's, more than {TOLERANCE:g}")
    return largest


def measure(lists: Sequence[List], rounds: int, work: Path) -> dict[str, Any]:
    """Rank with all in turns, `rounds` times. Returns rates, the largest difference of a score, and memory.

    Raises DifferentScoresError.
    """
    one_pair = [{**lists[0], "documents": lists[0]["documents"][:1]}]
    starts = {name: [rank(one_pair, work, *options)] for name, options in COMMANDS.items()}
    ran: dict[str, list[Ran]] = {name: [] for name in (SERVICE, *COMMANDS)}
    differences = dict.fromkeys(COMMANDS, 0.0)
    for _ in range(rounds):
        with Service(1, work / "log") as service:
            ask(service, one_pair)
            ran[SERVICE].append(ask(service, lists))
        for name, options in COMMANDS.items():
            ran[name].append(rank(lists, work, *options, "--shard-pairs", "500"))
            differences[name] = max(differences[name], largest_difference(ran[SERVICE][-1].scores, ran[name][-1].scores))
    for name, options in COMMANDS.items():
        starts[name].append(rank(one_pair, work, *options))
    return {
        "pairs": pairs_of(lists),
        "rates": {name: _rates(pairs_of(lists), of, starts.get(name, [])) for name, of in ran.items()},
        "start_seconds": {name: statistics.fmean(one.wall for one in of) for name, of in starts.items()},
        "differences": differences,
        "resident": {name: {kind: round(most) for kind, most in ran[name][-1].resident.items()} for name in COMMANDS},
    }


def _rates(pairs: int, ran: Sequence[Ran], starts: Sequence[Ran]) -> dict[str, float]:
    """Pairs a second by the clock and per CPU second: medians of all rounds, without the mean time of a start."""
    rates = {}
    for kind in ("wall", "cpu"):
        start = statistics.fmean(getattr(one, kind) for one in starts) if starts else 0.0
        rates[kind] = statistics.median(pairs / (getattr(one, kind) - start) for one in ran)
    return rates
