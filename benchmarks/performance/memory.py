"""Measures the growth of the service's memory: resident bytes after a number of requests, and after ten times as many."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from benchmarks.performance.bench import Bench
from benchmarks.performance.clients import send_all
from tests.support.serving import Service, ServiceError, make_body

DOCUMENTS, WORDS = 10, 500
CLIENTS = 4
CACHE_A_REQUEST = 20 * 1024  # bytes of cache for each of the first requests: less than a request needs


def measure(bench: Bench) -> dict[str, Any]:
    """Resident bytes after the first and the last request.

    A setting limits the cache of prepared documents. Here it is so low that the first requests fill the cache. So any later growth
    has another cause.
    """
    first, last = bench.sizes.memory_first, bench.sizes.memory_last
    cache = first * CACHE_A_REQUEST
    with bench.fresh_service(cache_bytes=cache) as service:
        at_start = service.resident()
        readings = [read(bench, service, count) for count in (first, last - first)]
    (resident_first, cached_first), (resident_last, cached_last) = readings
    return {
        "first": first,
        "last": last,
        "documents": DOCUMENTS,
        "words": WORDS,
        "cache_bytes": cache,
        "cached_first": cached_first,
        "cached_last": cached_last,
        "resident_start": at_start,
        "resident_first": resident_first,
        "resident_last": resident_last,
    }


def read(bench: Bench, service: Service, count: int) -> tuple[int, int]:
    """Send `count` requests. Returns the bytes of the process and of its cache after them. Raises ServiceError."""
    answered = send_all(service.url, mixed(bench, service, count), CLIENTS)
    if not all(answer.good for answer in answered):
        raise ServiceError("a request had an error or a degraded answer")
    return service.resident(), service.cached()


def mixed(bench: Bench, service: Service, count: int) -> Iterator[bytes]:
    """Requests with documents of 1 to 1,000 words, 500 on average, and random budgets from the bundle's range."""
    rng = np.random.default_rng(0)
    low, _, high = service.budgets
    for _ in range(count):
        request = bench.source.request(DOCUMENTS, 2 * WORDS)
        sizes = rng.integers(1, 2 * WORDS + 1, DOCUMENTS)
        cut = [" ".join(text.split()[:size]) for text, size in zip(request.documents, sizes, strict=True)]
        yield make_body(request._replace(documents=cut), int(rng.integers(low, high + 1)))
