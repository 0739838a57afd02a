"""Times the start of an installed service, from the command to ready."""

from typing import Any

from benchmarks.performance.bench import Bench
from benchmarks.performance.rounds import spread


def measure(bench: Bench) -> dict[str, Any]:
    """Seconds of several starts in a row. The first one may have to read the files from disk."""
    seconds = []
    for _ in range(bench.sizes.starts):
        with bench.fresh_service() as service:
            seconds.append(service.start_seconds)
    return {"first": seconds[0], "seconds": spread(seconds)}
