"""From the command to a service that is ready, once it is installed."""

from typing import Any

from benchmarks.performance.bench import Bench
from benchmarks.performance.rounds import spread


def measure(bench: Bench) -> dict[str, Any]:
    """Seconds of several starts, one after the other; the first of them reads the files from disk where no start came before."""
    seconds = []
    for _ in range(bench.sizes.starts):
        with bench.fresh_service() as service:
            seconds.append(service.start_seconds)
    return {"first": seconds[0], "seconds": spread(seconds)}
