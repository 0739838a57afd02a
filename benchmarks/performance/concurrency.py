"""Compares many clients with small requests to one request with as many documents."""

import time
from collections.abc import Callable
from typing import Any

from benchmarks.performance.bench import Bench
from benchmarks.performance.clients import send_all, steady_rate
from benchmarks.performance.peers import Server
from benchmarks.performance.rounds import in_turns, spread
from tests.support.serving import ServiceError, make_body


def measure(bench: Bench) -> dict[str, Any]:
    """Documents a second of the bundle as it is, by number of clients and in one batch, and those of infinity's server."""
    sizes = bench.sizes
    service = bench.service(wide=False)
    most = max(sizes.clients)

    def one_batch(_: int) -> float:
        request = bench.source.request(most * sizes.client_documents, sizes.client_words)
        return len(request.documents) / service.rank(request).seconds

    ways: dict[str, Callable[[int], float]] = {"one batch": one_batch}
    ways |= {f"{n} clients": lambda _, n=n: client_rate(bench, service.url, n) for n in sizes.clients}
    for peer, running in bench.peers(("infinity",)).items():
        if isinstance(running, Server):
            ways[f"{peer.name}: {most} clients"] = lambda _, r=running: client_rate(bench, r.url, most, rounds=1)
    rates = in_turns(ways, sizes.turns)
    figures = {"clients": most, "client_documents": sizes.client_documents, "words": sizes.client_words}
    return figures | {"documents_a_second": {name: spread(found) for name, found in rates.items()}}


def client_rate(bench: Bench, url: str, clients: int, rounds: int | None = None) -> float:
    """Documents a second of clients. Each sends several requests, one after the other. Raises ServiceError."""
    sizes = bench.sizes
    count = clients * (rounds or sizes.client_requests)
    bodies = [make_body(bench.source.request(sizes.client_documents, sizes.client_words)) for _ in range(count)]
    began = time.perf_counter()
    answered = send_all(url, bodies, clients)
    if not all(answer.good for answer in answered):
        raise ServiceError(f"of {len(answered)} requests {sum(not a.good for a in answered)} had an error or a degraded answer")
    return steady_rate(answered, began, clients) * sizes.client_documents
