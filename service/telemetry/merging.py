"""One set of metrics of several processes.

A counter must never fall: Prometheus would take that for a restart, and all that the others have counted for new. So who merges
keeps what ended processes have `counted`, and adds it.
"""

from collections.abc import Iterable
from typing import Literal

from prometheus_client import Metric
from prometheus_client.samples import Sample

from service.telemetry.metrics import TABLE

How = Literal["sum", "least", "most"]
HOW: dict[str, How] = {row.name: row.merged for row in TABLE.values()} | {
    "process_start_time_seconds": "least",  # the service's
    "process_max_fds": "least",  # each process has a limit of its own
    "python_info": "most",
}


class Merged:
    """All families of several processes, as a registry: what encodes metrics collects them.

    Args:
        processes: the families of each.
    """

    def __init__(self, processes: Iterable[Iterable[Metric]]) -> None:
        self._families: dict[str, dict[tuple[str, frozenset[tuple[str, str]]], Sample]] = {}
        self._metrics: dict[str, Metric] = {}
        for families in processes:
            for family in families:
                self._add(family)

    def collect(self) -> list[Metric]:
        """The families."""
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
            samples[key] = sample if key not in samples else _both(samples[key], sample, HOW.get(family.name, "sum"))


def counted(families: Iterable[Metric]) -> list[Metric]:
    """What stays of a process that has ended: what it has counted, and none of its gauges."""
    return [family for family in families if family.type in ("counter", "histogram")]


def _both(one: Sample, other: Sample, how: How) -> Sample:
    value = {"sum": one.value + other.value, "least": min(one.value, other.value), "most": max(one.value, other.value)}[how]
    return one._replace(value=value, exemplar=one.exemplar or other.exemplar)
