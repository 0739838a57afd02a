"""How reloads slow requests down: the latency of a small request alone, and while bundles are reloaded without pause.

    python -m benchmarks.reload [--bundle models/default] [--provider auto] [--reloads 20] [--requests 500]

Two bundles replace each other in a directory again and again, as keyblock-export would write them. They have the same weights, and
differ in the tokens of a document. A client sends examples/request.json without pause. Prints a table and the process's memory;
fails if an answer is lost, or comes from neither bundle. ONNX Runtime holds the interpreter lock while it opens a graph, which
delays the slowest answers; the time of opening is printed, too.
"""

import argparse
import json
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from benchmarks.performance.service import Service
from keyblock.bundle import Bundle, load_bundle, write_bundle
from keyblock.runtime.cpus import default_threads
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider

ROOT = Path(__file__).resolve().parent.parent
WARM_UP = 20  # requests that are not measured
MIB = 2**20


class Asker:
    """A client that sends the same request again and again.

    Attributes:
        seconds: the time from sending to the answer, of each request.
        budgets: the token budgets in the answers, which identify the bundles.
    """

    def __init__(self, url: str) -> None:
        self._client = httpx.Client(base_url=url, timeout=60)
        self._body = (ROOT / "examples" / "request.json").read_bytes()
        self.seconds: list[float] = []
        self.budgets: set[int] = set()

    def ask(self) -> None:
        """Send one request. Raises httpx.HTTPError if the answer is lost."""
        started = time.perf_counter()
        response = self._client.post("/rerank", content=self._body)
        self.seconds.append(time.perf_counter() - started)
        self.budgets.add(int(response.raise_for_status().json()["meta"]["tokens_per_document"]))

    def close(self) -> None:
        """Close the connection."""
        self._client.close()

    def row(self, name: str) -> str:
        """The table's line for the requests since the last call."""
        p50, p99, most = 1000 * np.quantile(self.seconds, [0.5, 0.99, 1.0])
        line = f"| {name} | {len(self.seconds)} | {p50:.1f} | {p99:.1f} | {most:.1f} |"
        self.seconds.clear()
        return line


def main(options: argparse.Namespace) -> None:
    """Measure alone, then under reloads, and print both."""
    bundle = load_bundle(options.bundle)
    low, high = bundle.manifest.pipeline.packing.budget_range
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "bundles" / "default"
        put(bundle, place, low)
        log = Path(folder) / "service.log"
        with (
            Service(default_threads(), log, bundle=place.parent, provider=options.provider) as service,
            closing(Asker(service.url)) as asker,
        ):
            for _ in range(WARM_UP):
                asker.ask()
            asker.seconds.clear()
            for _ in range(options.requests):
                asker.ask()
            alone = asker.row("alone")
            taken, resident = reload_beside(service, asker, bundle, place, options.reloads)
            hold(asker.budgets == {low, high}, f"the answers are of bundles of {asker.budgets} tokens, not of {low} and {high}")
            print(service.info["provider"]["why"], end="\n\n")
            print(
                "| | requests | p50, ms | p99, ms | longest, ms |\n|---|---|---|---|---|", alone, asker.row("reloading"), sep="\n"
            )
            print(f"\nto open the graphs takes {opening(bundle, options.provider):.2f} s of a processor's time")
            print(f"a reload takes {np.median(taken):.2f} s; MiB held after each: {', '.join(str(n // MIB) for n in resident)}")


def opening(bundle: Bundle, provider: str) -> float:
    """CPU seconds that it takes to open the graphs, once the libraries are loaded."""
    for _ in range(2):
        began = time.process_time()
        GraphModel.open(bundle, provider)
    return time.process_time() - began


def put(bundle: Bundle, place: Path, budget: int) -> None:
    """Write the bundle with this budget to `place`, and replace what is there."""
    pipeline = bundle.manifest.pipeline
    packing = pipeline.packing.model_copy(update={"budget": budget})
    manifest = bundle.manifest.model_copy(update={"pipeline": pipeline.model_copy(update={"packing": packing})})
    write_bundle(place, manifest, {name: bundle.path / name for name in bundle.manifest.files}, overwrite=True)


def reload_beside(
    service: Service, asker: Asker, bundle: Bundle, place: Path, reloads: int
) -> tuple[Sequence[float], Sequence[int]]:
    """Send requests while bundles change. Returns the seconds of each reload, and the process's bytes after it."""
    stop = threading.Event()
    lost: list[httpx.HTTPError] = []

    def ask() -> None:
        try:
            while not stop.is_set():
                asker.ask()
        except httpx.HTTPError as error:
            lost.append(error)

    client = threading.Thread(target=ask)
    client.start()
    taken, resident = [], []
    try:
        for turn in range(reloads):
            put(bundle, place, bundle.manifest.pipeline.packing.budget_range[(turn + 1) % 2])
            answer = reloaded(service.url)
            hold(bool(answer["loaded"]), f"nothing was loaded: {answer}")
            taken.append(answer["seconds"])
            resident.append(service.resident())
    finally:
        stop.set()
        client.join()
    hold(not lost, f"an answer was lost: {lost[:1]}")
    return taken, resident


def hold(true: bool, problem: str) -> None:
    """Exit the program with the problem unless the condition is true."""
    if not true:
        raise SystemExit(problem)


def reloaded(url: str) -> dict[str, Any]:
    """The answer to a reload."""
    answer: dict[str, Any] = json.loads(httpx.post(f"{url}/admin/reload", timeout=600).raise_for_status().content)
    return answer


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--bundle", type=Path, default=ROOT / "models" / "default")
    made.add_argument("--provider", choices=list(Provider), default=Provider.AUTO)
    made.add_argument("--reloads", type=int, default=20)
    made.add_argument("--requests", type=int, default=500)
    return made


if __name__ == "__main__":
    main(parser().parse_args())
