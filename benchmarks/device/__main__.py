"""Measures which share of a fast device's rate the host reaches over HTTP, by preparation threads, and where its time goes.

    python -m benchmarks.device [--threads 1 2 4] [--processes 1] [--seconds 20] [--documents 100] [--words 2000] [--rate 25000]
                                [--launch 0.0001] [--token-cap 16384] [--py-spy PROGRAM] [--json FILE]

Starts the service with a session that sleeps as long as a GPU would compute: 25,000 sequences of 128 tokens a second, padding
included, and 0.1 ms a batch. Clients in separate processes send new documents (every cache is off), and then the same documents by
id. Prints documents a second, the device's share, and milliseconds of processor time a document by kind of work. For a service of
one process, and with py-spy (a separate program), it also prints for which share of their work the threads hold the interpreter
lock.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

import httpx

from benchmarks.device.engine import engine_alone
from benchmarks.device.ledger import KINDS, PATH, REST
from benchmarks.device.processes import CALLS, LEDGERS, ledgers
from benchmarks.device.processes import REST as BESIDE
from benchmarks.device.session import LAUNCH, RATE, SimulatedDevice
from benchmarks.performance.service import Service
from benchmarks.performance.texts import invented
from keyblock.bundle import TOKENIZER_FILE, load_bundle
from service.settings import DEFAULT_BUNDLE

BODIES = 12  # requests of different documents, sent again and again
CLIENTS = 2  # processes
WARM_SECONDS = 3
PATIENCE = 600  # seconds to start, on a machine with other work
SAMPLES = 50  # a second, of py-spy
NATIVE = "native threads"
CORES = (1, 2, 4, 8, 16)


@dataclass
class Measured:
    """A measurement with one kind of request, number of threads and number of processes.

    Attributes:
        rate: documents a second.
        share: share of the device's rate.
        busy: share of the time in which the device computed.
        cpu: milliseconds of processor time a document, by kind of thread.
        steps: milliseconds of processor time a document, by step in these threads.
        waits: each step's wall time divided by its processor time; more than 1 means waiting for the lock or a core.
        clients: milliseconds of the clients' processor time a document.
        locked: share of the threads' work in which they hold the interpreter lock; None without py-spy.
        hot: the functions that hold the lock most, each with its share of the time in which it is held.
        processes: processes for HTTP and preparation; if more than one, the model has another.
    """

    way: str
    threads: int
    rate: float
    share: float
    busy: float
    cpu: dict[str, float]
    steps: dict[str, float]
    waits: dict[str, float]
    clients: float
    locked: float | None = None
    hot: list[str] = field(default_factory=list)
    processes: int = 1

    @property
    def total(self) -> float:
        """Milliseconds of the service's processor time a document."""
        return sum(self.cpu.values())

    @property
    def under_lock(self) -> float | None:
        """Milliseconds a document in which a thread works and holds the interpreter lock."""
        return None if self.locked is None else self.total * self.locked

    @property
    def of_model(self) -> float:
        """Milliseconds a document of the model's process. There is one, whatever the number of front processes."""
        return sum(self.cpu.get(kind, 0.0) for kind in (CALLS, KINDS["model"], BESIDE))

    def reachable(self, cores: int) -> float:
        """Documents a second that `cores` cores can reach, limited by their time and by one interpreter lock."""
        return min(1000 * cores / self.total, 1000 / (self.under_lock or 1e-9))


def main(options: argparse.Namespace) -> None:
    """Measure every number of threads and print."""
    device = SimulatedDevice(options.rate, options.launch)
    alone = engine_alone(load_bundle(DEFAULT_BUNDLE), device, options.token_cap)
    print(
        f"the model's thread alone: {alone.rate:.0f} sequences a second, the device is busy for {alone.busy:.1%} of the time,",
        end=" ",
    )
    print(f"and has a batch for {alone.given:.1%}; it and the device's thread take {alone.host:.1f} us of CPU a sequence")
    found = []
    with tempfile.TemporaryDirectory() as folder:
        bodies = write_bodies(Path(folder), options.documents, options.words) if options.threads else {}
        for processes, threads in product(options.processes, options.threads):
            with started(Path(folder), threads, processes, options) as service:
                store(service, bodies["new"])
                for way, paths in bodies.items():
                    found.append(measure(service, way, paths, (threads, processes), options))
                    show(found[-1])
    if options.json:
        options.json.write_text(
            json.dumps({"engine": alone._asdict(), "served": [asdict(one) for one in found]}, indent=1) + "\n", encoding="utf-8"
        )


def write_bodies(folder: Path, documents: int, words: int) -> dict[str, list[Path]]:
    """Write requests with texts, and the same requests by id, each to a file."""
    source = invented(DEFAULT_BUNDLE / TOKENIZER_FILE)
    paths: dict[str, list[Path]] = {"new": [], "by id": []}
    for number in range(BODIES):
        request = source.request(documents, words)
        named = [{"id": f"{number}-{place}", "text": text} for place, text in enumerate(request.documents)]
        by_id = [{"id": one["id"]} for one in named]
        for way, listed in (("new", named), ("by id", by_id)):
            paths[way].append(folder / f"{way}-{number}.json")
            paths[way][-1].write_text(
                json.dumps({"query": request.query, "documents": listed, "top_n": len(listed)}), encoding="utf-8"
            )
    return paths


@contextmanager
def started(folder: Path, threads: int, processes: int, options: argparse.Namespace) -> Iterator[Service]:
    """Run the service in front of the device, with these numbers of threads and processes."""
    os.environ.update({RATE: str(options.rate), LAUNCH: str(options.launch), LEDGERS: str(folder)})
    command = (sys.executable, "-m", "benchmarks.device.serving")
    log, place = folder / f"log-{processes}-{threads}", folder / f"store-{processes}-{threads}"
    settings = {"token_cap": options.token_cap, "max_wait_ms": 10**6, "cache_bytes": 0, "store": place, "processes": processes}
    with Service(threads, log, command, patience=PATIENCE, bundle=DEFAULT_BUNDLE, **settings) as service:
        yield service


def store(service: Service, bodies: list[Path]) -> None:
    """Store all documents by their ids."""
    for body in bodies:
        lines = "\n".join(json.dumps(one) for one in json.loads(body.read_bytes())["documents"])
        headers = {"Content-Type": "application/x-ndjson"}
        httpx.put(f"{service.url}/documents", content=lines, headers=headers, timeout=600).raise_for_status()


def measure(service: Service, way: str, paths: list[Path], size: tuple[int, int], options: argparse.Namespace) -> Measured:
    """Measure a service under load. `size` is its threads and processes. Raises RuntimeError if an answer failed."""
    threads, processes = size
    # per client: enough work for every thread and for the device's queue, and connections for every front process
    connections = max(2, threads + 1) if processes == 1 else 4 * max(threads, processes)
    run_clients(service.port, connections, WARM_SECONDS, paths)
    before = ledger(service, processes)
    with ThreadPoolExecutor(1) as pool:
        spied = (
            pool.submit(spy, options.py_spy, service.process.pid, options.seconds) if options.py_spy and processes == 1 else None
        )
        reports = run_clients(service.port, connections, options.seconds, paths)
    after = ledger(service, processes)
    answered = sum(one["answers"] for one in reports)
    if not answered or any(one["failures"] for one in reports):
        raise RuntimeError(f"{way}, {threads} threads, {processes} processes: {reports}")
    rate = answered * options.documents / options.seconds
    wall = after["at"] - before["at"]
    done = rate * wall  # requests sent at the end are answered after it
    locked, hot = spied.result() if spied else (None, [])
    cpu = milliseconds(before["threads"], after["threads"], done)
    cpu[NATIVE] = max(1000 * (after["cpu"] - before["cpu"]) / done - sum(cpu.values()), 0.0)
    steps = {kind: milliseconds(_by_step(before, kind), _by_step(after, kind), done) for kind in ("cpu", "wall")}
    waits = {step: steps["wall"][step] / spent for step, spent in steps["cpu"].items() if spent > 1e-4}
    clients = 1000 * sum(one["cpu"] for one in reports) / (answered * options.documents)
    busy = (after["device"]["busy"] - before["device"]["busy"]) / wall
    return Measured(way, threads, rate, rate / options.rate, busy, cpu, steps["cpu"], waits, clients, locked, hot, processes)


def run_clients(port: int, connections: int, seconds: float, paths: list[Path]) -> list[dict[str, Any]]:
    """Run the client processes. Returns their reports."""
    command = [sys.executable, "-m", "benchmarks.device.client", str(port), str(connections), str(seconds)]
    shares = [paths[number::CLIENTS] for number in range(CLIENTS)]
    running = [subprocess.Popen([*command, *map(str, share)], stdout=subprocess.PIPE) for share in shares]
    return [json.loads(process.communicate()[0]) for process in running]


def ledger(service: Service, processes: int) -> dict[str, Any]:
    """The sums over all processes; see Ledger."""
    if processes > 1:
        return ledgers(service.process.pid, Path(os.environ[LEDGERS]))
    report: dict[str, Any] = httpx.get(service.url + PATH, timeout=600).json()
    return report


def milliseconds(before: dict[str, float], after: dict[str, float], documents: float) -> dict[str, float]:
    """Milliseconds a document between two sums of seconds, by key."""
    return {key: 1000 * (seconds - before.get(key, 0.0)) / documents for key, seconds in after.items()}


def _by_step(report: dict[str, Any], kind: str) -> dict[str, float]:
    return {step: sums[kind] for step, sums in report["steps"].items()}


def spy(program: str, process: int, seconds: float) -> tuple[float, list[str]]:
    """The share of their work for which the process's threads hold the interpreter lock, and the functions that hold it most."""
    time.sleep(1.0)  # until the clients send requests
    with tempfile.TemporaryDirectory() as folder:
        stacks: list[str] = []
        for which in (["--gil"], []):  # first threads that hold the lock, then all working threads
            out = Path(folder) / f"raw{len(stacks)}"
            how = ["--nonblocking", "-r", str(SAMPLES), "-d", str(max(int(seconds / 2) - 2, 2)), "-f", "raw", "-o", str(out)]
            subprocess.run([program, "record", *which, *how, "-p", str(process)], check=True, capture_output=True)
            stacks.append(out.read_text(encoding="utf-8"))
    return held(stacks[0], stacks[1])


def held(holding: str, working: str, most: int = 12) -> tuple[float, list[str]]:
    """The share of py-spy's working samples that hold the lock, and the functions that hold it most.

    A sample is a line `outer;inner count`.
    """
    holds = innermost(holding)
    total = max(sum(holds.values()), 1)
    hot = sorted(holds, key=holds.__getitem__, reverse=True)[:most]
    share = sum(holds.values()) / max(sum(innermost(working).values()), 1)
    return min(share, 1.0), [f"{holds[name] / total:.1%} {name}" for name in hot]


def innermost(stacks: str) -> dict[str, int]:
    """Samples by the function that was running."""
    counts: dict[str, int] = {}
    for line in stacks.splitlines():
        stack, _, count = line.rpartition(" ")
        inner = stack.rpartition(";")[2]
        counts[inner] = counts.get(inner, 0) + int(count)
    return counts


def show(one: Measured) -> None:
    """Print a measurement."""
    print(f"{one.way}, {one.threads} threads, {one.processes} processes: {one.rate:.0f} documents a second, ", end="")
    print(f"{one.share:.1%} of the device's rate; ", end="")
    print(f"the device is busy for {one.busy:.1%} of the time; clients take {one.clients:.2f} ms a document")
    kinds = [*KINDS.values(), CALLS, BESIDE, REST, NATIVE]
    print("  CPU ms a document:", ", ".join(f"{kind} {one.cpu[kind]:.3f}" for kind in kinds if one.cpu.get(kind)), end="; ")
    print(f"together {one.total:.3f}")
    print("  of that:", ", ".join(f"{step} {spent:.3f} (wall x{one.waits.get(step, 1):.1f})" for step, spent in one.steps.items()))
    if one.processes > 1:
        print(f"  fronts {one.total - one.of_model:.3f}; the model's process {one.of_model:.3f}: no more than", end=" ")
        print(f"{1000 / one.of_model:.0f} documents a second, whatever the number of fronts")
    if one.under_lock is not None:
        print(f"  the interpreter lock is held for {one.locked:.0%} of it, {one.under_lock:.3f} ms a document; most by:")
        print("\n".join(f"    {line}" for line in one.hot))
        print("  so cores allow:", ", ".join(f"{cores}: {one.reachable(cores):.0f}" for cores in CORES))


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument(
        "--threads", type=int, nargs="*", default=[1, 2, 4], help="preparation threads; none: only the model's thread"
    )
    made.add_argument("--processes", type=int, nargs="+", default=[1])
    made.add_argument("--seconds", type=float, default=20)
    made.add_argument("--documents", type=int, default=100, help="documents of a request")
    made.add_argument("--words", type=int, default=2000)
    made.add_argument("--rate", type=float, default=25_000, help="the device's rate, in sequences of 128 tokens a second")
    made.add_argument("--launch", type=float, default=0.0001, help="additional seconds of every batch")
    made.add_argument("--token-cap", type=int, default=16_384)
    made.add_argument("--py-spy", default="", metavar="PROGRAM")
    made.add_argument("--json", type=Path, metavar="FILE")
    return made


if __name__ == "__main__":
    main(parser().parse_args())
