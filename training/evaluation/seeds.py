"""Several seeds of one system, averaged per query, so that a paired test compares systems and not single seeds."""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean

from training.evaluation.measures import Values


def seed_runs(path: Path) -> list[Path]:
    """The runs of a path: the path itself, or the run directories in it (seeds of one system) if it is not a run."""
    if (path / "pipeline.json").exists():
        return [path]
    return sorted(inner.parent for inner in path.glob("*/pipeline.json")) or [path]


def mean_over_seeds(seeds: Sequence[Values]) -> Values:
    """Each query's mean over the seeds, by measure. Raises ValueError if the seeds differ in measures or queries."""
    first = seeds[0]
    for values in seeds[1:]:
        if {m: set(queries) for m, queries in values.items()} != {m: set(queries) for m, queries in first.items()}:
            raise ValueError("seeds of one system must be measured on the same queries, by the same measures: measure them again")
    return {measure: {q: fmean(values[measure][q] for values in seeds) for q in queries} for measure, queries in first.items()}
