"""Several seeds of one system: averaged per query first, so that a test then pairs systems and not lucky draws."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from training.evaluation.measures import Values


def seed_runs(path: Path) -> list[Path]:
    """The runs that a path stands for: itself, or every run directory in it when it only holds such (seeds of one system)."""
    if (path / "pipeline.json").exists():
        return [path]
    return sorted(inner.parent for inner in path.glob("*/pipeline.json")) or [path]


def mean_over_seeds(seeds: Sequence[Values]) -> Values:
    """Each query's mean over the seeds, by measure. Raises ValueError when the seeds were not measured on the same queries."""
    first = seeds[0]
    for values in seeds[1:]:
        if {m: set(of) for m, of in values.items()} != {m: set(of) for m, of in first.items()}:
            raise ValueError("seeds of one system must be measured on the same queries, by the same measures: measure them again")
    return {measure: {q: fmean(values[measure][q] for values in seeds) for q in of} for measure, of in first.items()}
