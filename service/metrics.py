"""What the service measures: one declared table, from which the code, the tests and the dashboards take their names."""

from typing import Literal, NamedTuple

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)  # seconds
STAGES = ("parse", "prepare", "select", "queue", "model", "respond")  # select: the whole first round of a learned selector
DEGRADED = ("tokens", "blocks", "selector", "order")  # fewer tokens; blocks not scored; ordered by blocks alone; not read
OUTCOMES = ("ok", "invalid", "refused", "cancelled", "failed")
BATCHES = ("ok", "failed", "split")  # the last is run again in halves
LOOKUPS = ("hit", "miss")
STORE_LOOKUPS = ("hit", "miss", "stale", "damaged")  # stale: another pipeline has prepared it, so it is prepared again
STORE_ERRORS = ("full", "unavailable")
RELOADS = ("ok", "unchanged", "failed")
DENIED = ("key", "scope")
REFUSED = ("unready", "wait", "requests", "bytes", "documents")


class Metric(NamedTuple):
    """A row of the table; label values never come from a client."""

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    help: str
    labels: tuple[str, ...] = ()
    known: tuple[str, ...] = ()  # values of its one label, shown as 0 from the start


_list = ", ".join
TABLE = {
    "requests": Metric(
        "counter", "keyblock_requests_total", f"Rerank requests by outcome: {_list(OUTCOMES)}", ("dialect", "outcome")
    ),
    "refused": Metric(
        "counter", "keyblock_refused_total", f"Requests refused for want of room, by what: {_list(REFUSED)}", ("why",), REFUSED
    ),
    "denied": Metric("counter", "keyblock_denied_total", f"Requests denied for want of what: {_list(DENIED)}", ("why",), DENIED),
    "in_flight": Metric("gauge", "keyblock_in_flight_requests", "Requests in flight"),
    "wait": Metric("gauge", "keyblock_wait_seconds", "Waiting work at the measured pace of the model"),
    "latency": Metric("histogram", "keyblock_request_seconds", "From a request's last byte to its answer", ("dialect", "model")),
    "stages": Metric("histogram", "keyblock_stage_seconds", f"Time in a stage: {_list(STAGES)}", ("stage",)),
    "documents": Metric("counter", "keyblock_documents_total", "Documents of answered requests", ("model",)),
    "unscored": Metric("counter", "keyblock_unscored_documents_total", "Documents without a block, ranked last"),
    "degraded": Metric(
        "counter",
        "keyblock_degraded_total",
        f"Requests whose deadline cost something, by what: {_list(DEGRADED)}",
        ("how",),
        DEGRADED,
    ),
    "tokens": Metric(
        "counter", "keyblock_tokens_total", "Tokens fed to the model, to select and to score, padding not counted", ("model",)
    ),
    "padding": Metric("counter", "keyblock_padding_tokens_total", "Padding tokens fed to the model", ("model",)),
    "batches": Metric(
        "counter", "keyblock_batches_total", f"Batches the model has run, by outcome: {_list(BATCHES)}", ("model", "outcome")
    ),
    "queued": Metric("gauge", "keyblock_queue_sequences", "Sequences waiting for the model, to select or to score"),
    "cache_lookups": Metric(
        "counter", "keyblock_cache_lookups_total", f"Documents sought in the cache: {_list(LOOKUPS)}", ("outcome",), LOOKUPS
    ),
    "cache_bytes": Metric("gauge", "keyblock_cache_bytes", "Bytes of prepared documents in the cache"),
    "store_requests": Metric(
        "counter", "keyblock_store_requests_total", f"Requests to /documents by outcome: {_list(OUTCOMES)}", ("method", "outcome")
    ),
    "store_lookups": Metric(
        "counter",
        "keyblock_store_lookups_total",
        f"Documents sought by id alone: {_list(STORE_LOOKUPS)}",
        ("outcome",),
        STORE_LOOKUPS,
    ),
    "stored": Metric("counter", "keyblock_stored_documents_total", "Documents stored, and acknowledged"),
    "store_errors": Metric(
        "counter", "keyblock_store_errors_total", f"What the store could not do: {_list(STORE_ERRORS)}", ("why",), STORE_ERRORS
    ),
    "store_up": Metric(
        "gauge", "keyblock_store_up", "1 while the store of documents answers; 0 when it does not, or there is none"
    ),
    "store_documents": Metric("gauge", "keyblock_store_documents", "Documents in the store"),
    "store_bytes": Metric("gauge", "keyblock_store_bytes", "Bytes that the store takes"),
    "store_evicted": Metric(
        "gauge", "keyblock_store_evicted_documents", "Documents forgotten for want of room since the store runs"
    ),
    "ready": Metric("gauge", "keyblock_ready", "1 when requests can be served: warmed up, and the model's thread lives"),
    "reloads": Metric(
        "counter", "keyblock_reloads_total", f"Times that the bundles were read again: {_list(RELOADS)}", ("outcome",), RELOADS
    ),
    "build": Metric(
        "gauge", "keyblock_build_info", "Always 1, for each model that is served", ("version", "bundle", "precision", "provider")
    ),
}


class Metrics:
    """The table's instruments, in a registry of their own. Raises KeyError for a name that the table does not have."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        for key, row in TABLE.items():
            self._build(key, row)

    def _build(self, key: str, row: Metric) -> None:
        if row.kind == "counter":
            self._counters[key] = Counter(row.name, row.help, row.labels, registry=self.registry)
            for value in row.known:
                self._counters[key].labels(value)
        elif row.kind == "gauge":
            self._gauges[key] = Gauge(row.name, row.help, row.labels, registry=self.registry)
        else:
            self._histograms[key] = Histogram(row.name, row.help, row.labels, registry=self.registry, buckets=BUCKETS)

    def add(self, key: str, amount: float = 1, **labels: str) -> None:
        """Count."""
        counter = self._counters[key]
        (counter.labels(**labels) if labels else counter).inc(amount)

    def set(self, key: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        gauge = self._gauges[key]
        (gauge.labels(**labels) if labels else gauge).set(value)

    def forget(self, key: str, **labels: str) -> None:
        """Show a gauge of these labels no more."""
        self._gauges[key].remove_by_labels(labels)

    def observe(self, key: str, seconds: float, **labels: str) -> None:
        """Add to a histogram."""
        histogram = self._histograms[key]
        (histogram.labels(**labels) if labels else histogram).observe(seconds)
