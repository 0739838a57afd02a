"""Merges the metrics of several processes into one set.

A counter must never fall: Prometheus would take that for a restart, and count everything in the other processes again. So the
merging process keeps what ended processes have `counted`, and adds it.
"""

from collections.abc import Iterable
from typing import Literal

from prometheus_client import Metric
from prometheus_client.samples import Sample

from service.telemetry.metrics import TABLE

Combining = Literal["sum", "least", "most"]
COMBINING: dict[str, Combining] = {row.name: row.merged for row in TABLE.values()} | {
    "process_start_time_seconds": "least",  # the start of the service
    "process_max_fds": "least",  # each process has its own limit
    "python_info": "most",
}


class Merged:
    """All families of several processes, as a registry from which encoders collect metrics.

    Args:
        processes: the families of each process.
    """

    def __init__(self, processes: Iterable[Iterable[Metric]]) -> None:
        self._families: dict[str, dict[tuple[str, frozenset[tuple[str, str]]], Sample]] = {}
        self._metrics: dict[str, Metric] = {}
        for families in processes:
            for family in families:
                self._add(family)

    def collect(self) -> list[Metric]:
        """The merged families."""
        merged = []
        for name, metric in self._metrics.items():
            merged.append(family := Metric(metric.name, metric.documentation, metric.type, metric.unit))
            family.samples = list(self._families[name].values())
        return merged

    def _add(self, family: Metric) -> None:
        self._metrics.setdefault(family.name, family)
        samples = self._families.setdefault(family.name, {})
        for sample in family.samples:
            key = sample.name, frozenset(sample.labels.items())
            samples[key] = sample if key not in samples else _combined(samples[key], sample, COMBINING.get(family.name, "sum"))


def counted(families: Iterable[Metric]) -> list[Metric]:
    """The families of an ended process that stay: counters and histograms, but no gauges."""
    return [family for family in families if family.type in ("counter", "histogram")]


def _combined(first: Sample, second: Sample, how: Combining) -> Sample:
    one, two = first.value, second.value
    value = {"sum": one + two, "least": min(one, two), "most": max(one, two)}[how]
    return first._replace(value=value, exemplar=first.exemplar or second.exemplar)
