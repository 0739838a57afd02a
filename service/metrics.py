"""What the service measures: one declared table, from which the code, the tests and the dashboards take their names."""

from typing import NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)  # seconds
STAGES = ("parse", "prepare", "queue", "model", "respond")
OUTCOMES = ("ok", "invalid", "cancelled", "failed")

Instrument = Counter | Gauge | Histogram


class Metric(NamedTuple):
    """A row of the table; label values never come from a client."""

    kind: type[Counter] | type[Gauge] | type[Histogram]
    name: str
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = BUCKETS

    def build(self, registry: CollectorRegistry) -> Instrument:
        """The instrument, registered."""
        if self.kind is Histogram:
            return Histogram(self.name, self.help, self.labels, registry=registry, buckets=self.buckets)
        return self.kind(self.name, self.help, self.labels, registry=registry)


TABLE = {
    "requests": Metric(Counter, "keyblock_requests_total", f"Rerank requests; outcome: {', '.join(OUTCOMES)}", ("dialect", "outcome")),
    "latency": Metric(Histogram, "keyblock_request_seconds", "From a request's last byte to its answer", ("dialect",)),
    "stages": Metric(Histogram, "keyblock_stage_seconds", f"Time in a stage: {', '.join(STAGES)}", ("stage",)),
    "documents": Metric(Counter, "keyblock_documents_total", "Documents of answered requests"),
    "unscored": Metric(Counter, "keyblock_unscored_documents_total", "Documents without a block, ranked last"),
    "tokens": Metric(Counter, "keyblock_tokens_total", "Tokens fed to the model, padding not counted"),
    "padding": Metric(Counter, "keyblock_padding_tokens_total", "Padding tokens fed to the model"),
    "batches": Metric(Counter, "keyblock_batches_total", "Batches the model has run; outcome: ok, failed", ("outcome",)),
    "queued": Metric(Gauge, "keyblock_queue_sequences", "Sequences waiting for the model"),
    "cache_lookups": Metric(Counter, "keyblock_cache_lookups_total", "Documents looked up in the cache; outcome: hit, miss", ("outcome",)),
    "cache_bytes": Metric(Gauge, "keyblock_cache_bytes", "Bytes of prepared documents in the cache"),
    "ready": Metric(Gauge, "keyblock_ready", "1 when requests can be served: warmed up, and the model's thread lives"),
    "build": Metric(Gauge, "keyblock_build_info", "Always 1", ("version", "bundle", "precision", "provider")),
}


class Metrics:
    """The table's instruments, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._instruments = {key: metric.build(self.registry) for key, metric in TABLE.items()}

    def add(self, key: str, amount: float = 1, **labels: str) -> None:
        """Count."""
        counter = self._labelled(key, labels)
        assert isinstance(counter, Counter), key
        counter.inc(amount)

    def set(self, key: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        gauge = self._labelled(key, labels)
        assert isinstance(gauge, Gauge), key
        gauge.set(value)

    def observe(self, key: str, seconds: float, **labels: str) -> None:
        """Add to a histogram."""
        histogram = self._labelled(key, labels)
        assert isinstance(histogram, Histogram), key
        histogram.observe(seconds)

    def _labelled(self, key: str, labels: dict[str, str]) -> Instrument:
        instrument = self._instruments[key]
        return instrument.labels(**labels) if labels else instrument
