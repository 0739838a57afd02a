"""One request of many documents, all systems in turns: the table behind most targets."""

from typing import Any

from benchmarks.performance.bench import Bench
from benchmarks.performance.parity import differences
from benchmarks.performance.systems import all_systems, compare


def measure(bench: Bench) -> dict[str, Any]:
    """A row for each system, and the largest differences between the peers' logits and those of KeyBlock's ranker."""
    sizes = bench.sizes
    systems = all_systems(bench)
    parity = differences(bench)
    bench.measure_peaks()
    rows = compare(bench, systems, sizes.documents, sizes.words, sizes.turns)
    bench.measure_peaks()
    return {"documents": sizes.documents, "words": sizes.words, "rows": rows, "parity": parity, "absent": dict(bench.absent)}
