"""keyblock-bulk beside the service: the same lists through both, in turns, in one thread each; then two workers, and Ray.

    python -m benchmarks.bulk --data DATA/squad-far

A rate is of pairs of query and document. What a command costs before its first pair, which it costs once, is measured by a job of
one pair and taken off. CPU seconds are of all processes; on a machine that does other work too, they are the steadier figure.
"""

import argparse
import gzip
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import httpx
import psutil

from benchmarks.performance.service import Service

BUNDLE = Path(__file__).resolve().parents[1] / "models" / "default"
MIB = 1 << 20
MB_KINDS = {"bulk.cli": "driver", "spawn_main": "worker", "MapWorker": "worker of Ray", "raylet": "raylet", "gcs_server": "gcs"}


class Cost(NamedTuple):
    """Seconds by the clock, and of all CPUs."""

    wall: float
    cpu: float

    def __sub__(self, other: "Cost") -> "Cost":
        return Cost(self.wall - other.wall, self.cpu - other.cpu)


def read_lists(data: Path, queries: int) -> list[dict[str, object]]:
    """The first lists of the dev run, each with its texts."""

    def rows(name: str) -> list[dict[str, str]]:
        with gzip.open(data / name, "rt", encoding="utf-8") as lines:
            return [json.loads(line) for line in lines]

    texts = {row["_id"]: row["text"] for row in rows("corpus.jsonl.gz")}
    asked = {row["_id"]: row["text"] for row in rows("queries.jsonl.gz")}
    run: dict[str, list[str]] = {}
    with gzip.open(data / "run.dev.bm25.trec.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            qid, _, docid, *_ = line.split()
            run.setdefault(qid, []).append(docid)
    first = list(run.items())[:queries]
    return [
        {"qid": qid, "query": asked[qid], "documents": [{"docid": one, "text": texts[one]} for one in found]}
        for qid, found in first
    ]


def ask(service: Service, lists: Sequence[dict[str, object]]) -> Cost:
    """All lists, one after the other, over HTTP."""
    process, began = psutil.Process(service.process.pid), time.perf_counter()
    before = sum(process.cpu_times()[:2])
    with httpx.Client(base_url=service.url, timeout=600) as client:
        for one in lists:
            documents = [document["text"] for document in one["documents"]]  # type: ignore[attr-defined]
            client.post("/rerank", json={"query": one["query"], "documents": documents}).raise_for_status()
    return Cost(time.perf_counter() - began, sum(process.cpu_times()[:2]) - before)


def rank(lists: Sequence[dict[str, object]], work: Path, *options: str) -> tuple[Cost, dict[str, float]]:
    """The command over the lists; and the most MiB that a process of each kind had resident."""
    with tempfile.TemporaryDirectory(dir=work) as folder:
        given = Path(folder, "lists.jsonl")
        given.write_text("".join(json.dumps(one) + "\n" for one in lists), encoding="utf-8")
        command = [sys.executable, "-m", "bulk.cli", "--lists", str(given), "--bundle", str(BUNDLE), "--out", f"{folder}/out"]
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        most: dict[str, float] = {}
        with subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True) as process:
            watch = threading.Thread(target=_watch, args=(process, most))
            watch.start()
            _, said = process.communicate()
            watch.join()
        if process.returncode:
            sys.exit(said)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
        return Cost(time.perf_counter() - began, cpu), most


def _watch(process: "subprocess.Popen[str]", most: dict[str, float]) -> None:
    while process.poll() is None:
        for one in (psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)):
            try:
                line = " ".join(one.cmdline())
                kind = next((name for part, name in MB_KINDS.items() if part in line), None)
                if kind is not None:
                    most[kind] = max(most.get(kind, 0.0), one.memory_info().rss / MIB)
            except psutil.Error:
                continue
        time.sleep(0.2)


def show(name: str, pairs: int, costs: Sequence[Cost]) -> tuple[float, float]:
    """Print medians, and give the two rates."""
    rates = [(pairs / one.wall, pairs / one.cpu) for one in costs]
    wall, cpu = (statistics.median(column) for column in zip(*rates, strict=True))
    print(f"{name:<22} {wall:8.1f} pairs/s   {cpu:8.1f} pairs a CPU second", flush=True)
    return wall, cpu


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--ray", action="store_true")
    options = parser.parse_args()
    lists = read_lists(options.data, options.queries)
    pairs = sum(len(one["documents"]) for one in lists)  # type: ignore[arg-type]
    one_pair = [{**lists[0], "documents": lists[0]["documents"][:1]}]  # type: ignore[index]
    online, one, two = [], [], []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        start = rank(one_pair, work, "--workers", "1")[0]
        for number in range(1, options.rounds + 1):
            with Service(1, work / "log") as service:
                ask(service, one_pair)
                online.append(ask(service, lists))
            cost, memory = rank(lists, work, "--workers", "1", "--shard-pairs", "500")
            one.append(cost - start)
            two.append(rank(lists, work, "--workers", "2", "--shard-pairs", "500")[0] - start)
            print(f"after {number} of {options.rounds} rounds, medians:")
            before = show("service, 1 thread", pairs, online)
            for name, costs in (("bulk, 1 worker", one), ("bulk, 2 workers", two)):
                wall, cpu = show(name, pairs, costs)
                print(f"{'':<22} {wall / before[0]:8.2f} x         {cpu / before[1]:8.2f} x", flush=True)
        print("resident, most MiB:", {kind: round(most) for kind, most in memory.items()})
        if options.ray:
            print(
                "Ray, most MiB:",
                {kind: round(most) for kind, most in rank(lists, work, "--engine", "ray", "--workers", "2")[1].items()},
            )


if __name__ == "__main__":
    main()
