"""The time that Ray Serve adds to a request, and the answers that clients get while another bundle is rolled out on it.

    python -m benchmarks.rayserve [--bundle models/default] [--requests 300] [--rolls 3] [--clients 2]

Sends examples/request.json to a service of one process, then to Ray Serve on this machine, with one replica of preparation and one
of the model, one thread each. Then clients send requests without pause while two bundles are rolled out in turn; they have the same
weights, and differ in the tokens of a document. Prints a table; fails if an answer is lost, or comes from neither bundle.
"""

import argparse
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import ray
from ray import serve

from benchmarks.event_loop import free_port
from benchmarks.performance.service import Service
from benchmarks.reload import WARM_UP, Asker, hold, put
from keyblock.bundle import load_bundle
from service.rayserve.deployments import build

ROOT = Path(__file__).resolve().parent.parent


def main(options: argparse.Namespace) -> None:
    """Measure, and print the table line by line."""
    bundle = load_bundle(options.bundle)
    budgets = bundle.manifest.pipeline.packing.budget_range
    print("| | requests | p50, ms | p99, ms | longest, ms |\n|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        places = [Path(folder) / str(budget) for budget in budgets]
        for place, budget in zip(places, budgets, strict=True):
            put(bundle, place, budget)
        with Service(1, Path(folder) / "service.log", bundle=places[0]) as service:
            print(client_line(service.url, options.requests, "one process"), flush=True)
        port = free_port()
        ray.init(address="local", num_cpus=4, include_dashboard=False, log_to_driver=False)
        serve.start(http_options={"port": port})
        deploy(places[0])
        url = f"http://127.0.0.1:{port}"
        print(client_line(url, options.requests, "Ray Serve"), flush=True)
        with asking(url, options.clients) as askers:
            for turn in range(options.rolls):
                deploy(places[(turn + 1) % 2])
        print(summary_line(askers, f"{options.rolls} roll-outs beside it", set(budgets)), flush=True)
        serve.shutdown()


def deploy(place: Path) -> None:
    """Roll a bundle out. Returns when every replica has it."""
    serve.run(build({"bundle": str(place), "threads": 1, "score_cache_bytes": 0}), name="keyblock", route_prefix="/")


def client_line(url: str, requests: int, name: str) -> str:
    """Measure one client; its line of the table."""
    asker = Asker(url)
    for _ in range(WARM_UP):
        asker.ask()
    asker.seconds.clear()
    for _ in range(requests):
        asker.ask()
    asker.close()
    return asker.row(name)


@contextmanager
def asking(url: str, clients: int) -> Iterator[list[Asker]]:
    """Run clients that send requests without pause. Exits the program if an answer was lost."""
    askers = [Asker(url) for _ in range(clients)]
    stop, lost = threading.Event(), list[httpx.HTTPError]()

    def ask(asker: Asker) -> None:
        try:
            while not stop.is_set():
                asker.ask()
        except httpx.HTTPError as error:
            lost.append(error)

    threads = [threading.Thread(target=ask, args=(asker,)) for asker in askers]
    for thread in threads:
        thread.start()
    try:
        yield askers
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    hold(not lost, f"an answer was lost: {lost[:1]}")


def summary_line(askers: list[Asker], name: str, budgets: set[int]) -> str:
    """The line of all clients. Exits the program unless their answers came from these bundles and no other."""
    seen = set[int]().union(*(asker.budgets for asker in askers))
    hold(seen == budgets, f"the answers are of bundles of {seen} tokens, not of {budgets}")
    for other in askers[1:]:
        askers[0].seconds += other.seconds
    for asker in askers:
        asker.close()
    return askers[0].row(name)


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--bundle", type=Path, default=ROOT / "models" / "default")
    made.add_argument("--requests", type=int, default=300)
    made.add_argument("--rolls", type=int, default=3)
    made.add_argument("--clients", type=int, default=2)
    return made


if __name__ == "__main__":
    main(parser().parse_args())
