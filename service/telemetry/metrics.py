"""The service's metrics: one declared table, from which the code, the docs, the dashboards and the alerts take their names.

`python -m k8s.monitoring` writes docs/run/metrics.md, the dashboards and the alerts from it.
"""

import copy
from collections.abc import Iterable, Mapping
from itertools import product
from types import MappingProxyType
from typing import Literal, NamedTuple, Self, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.gc_collector import GCCollector
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector

from keyblock.selectors import SelectedBy

BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)  # seconds
RATIOS = tuple(tenth / 10 for tenth in range(1, 11))
# select: the first round of a learned selector; upstream: scoring by an upstream, instead of model; second_look: waiting included
STAGES = ("parse", "prepare", "select", "queue", "model", "upstream", "second_look", "aggregate", "respond")
# fewer tokens; blocks not scored; ordered by blocks alone; in the order given; no spans; an upstream or the store failed
DEGRADED = ("tokens", "blocks", "selector", "order", "spans", "upstream", "store")
# late: for the deadline; skipped: not sent, since the upstream was away
UPSTREAM_OUTCOMES = ("ok", "retried", "late", "failed", "nonsense", "skipped")
DEADLINES = ("met", "late", "missed")  # late: by at most the promised time, the larger of 50 ms and a batch
OUTCOMES = ("ok", "invalid", "refused", "cancelled", "failed")
BATCHES = ("ok", "failed", "split")  # split: run again in halves
BLOCKS = ("considered", "asked", "scored")  # in the documents read; scored for a learned selector; read by the ranker
SELECTED_BY = tuple(by.value for by in SelectedBy)
PRUNED = ("contexts", "documents")
LOADS = ("load", "warm_up")
LOOKUPS = ("hit", "miss")
STORE_LOOKUPS = ("hit", "miss", "stale", "damaged", "away")
"""Stale: another pipeline has prepared the document, so it is prepared again. Away: its server does not answer, while others do."""
STORE_ERRORS = ("full", "unavailable")
RELOADS = ("ok", "unchanged", "failed")
DENIED = ("no_key", "unknown_key", "scope", "origin", "host")
FILES = ("ok", "refused", "too_much", "busy")
STORE_METHODS = ("PUT", "GET", "DELETE")
REFUSED = ("unready", "wait", "requests", "bytes", "documents")
CLOSED = ("large_head", "late_head", "malformed", "unread", "crowded")
PORTS = ("main", "admin")
DIALECTS = ("native", "tei", "voyage", "score", "nim")
MODEL = "model"  # the label of a bundle's name

Labels = Mapping[str, tuple[str, ...]]
"""The values of each label. Empty: any value found at the start of the process (bundles, GPUs), never a client's."""
disable_created_metrics()  # type: ignore[no-untyped-call]  # a third of all series, and of no use to Prometheus
T = TypeVar("T", Counter, Gauge, Histogram)
NO_LABELS: Labels = MappingProxyType({})
BY_MODEL: Labels = MappingProxyType({MODEL: ()})


class Metric(NamedTuple):
    """A row of the table.

    Label values never come from a client, and an unlisted value is an error. So clients cannot raise the number of series.
    """

    kind: Literal["counter", "gauge", "histogram"]
    name: str
    help: str
    labels: Labels = NO_LABELS
    buckets: tuple[float, ...] = BUCKETS


_list = ", ".join
TABLE = {
    "requests": Metric(
        "counter",
        "keyblock_requests_total",
        f"Rerank requests by outcome: {_list(OUTCOMES)}",
        {"dialect": DIALECTS, "outcome": OUTCOMES},
    ),
    "queries": Metric("counter", "keyblock_queries_total", "Queries of requests with several, by outcome", {"outcome": OUTCOMES}),
    "refused": Metric(
        "counter",
        "keyblock_refused_total",
        f"Requests refused because a limit was reached, by limit: {_list(REFUSED)}",
        {"why": REFUSED},
    ),
    "denied": Metric(
        "counter",
        "keyblock_denied_total",
        f"Requests denied, for a key or scope that is missing, an unknown key, or a foreign origin or host: {_list(DENIED)}",
        {"why": DENIED},
    ),
    "files": Metric(
        "counter",
        "keyblock_files_total",
        f"Files whose text the page wanted: {_list(FILES)}; too_much: of time or memory; busy: another was being read",
        {"outcome": FILES},
    ),
    "in_flight": Metric("gauge", "keyblock_in_flight_requests", "Requests in flight, until their answers are written"),
    "connections": Metric("gauge", "keyblock_open_connections", "Connections that are open", {"port": PORTS}),
    "closed": Metric(
        "counter",
        "keyblock_closed_connections_total",
        "Connections that the service ended: for a head that is too large or too late, malformed HTTP, an answer that the client "
        "did not read, or to make room for others",
        {"why": CLOSED},
    ),
    "wait": Metric("gauge", "keyblock_wait_seconds", "Time that the waiting work takes at the measured pace of the model"),
    "latency": Metric(
        "histogram",
        "keyblock_request_seconds",
        "Time from the last byte of a request to its answer, for answered requests",
        {"dialect": DIALECTS, MODEL: ()},
    ),
    "stages": Metric("histogram", "keyblock_stage_seconds", f"Time in a stage: {_list(STAGES)}", {"stage": STAGES, MODEL: ()}),
    "documents": Metric("counter", "keyblock_documents_total", "Documents of answered requests", BY_MODEL),
    "skipped": Metric(
        "counter",
        "keyblock_skipped_documents_total",
        "Documents that the pre-ranking skipped: the model has not read them",
        BY_MODEL,
    ),
    "looked": Metric(
        "counter", "keyblock_second_look_tokens_total", "Tokens that the model read on in the best documents", BY_MODEL
    ),
    "spans": Metric("counter", "keyblock_spans_total", "Relevant spans in answers", BY_MODEL),
    "below": Metric(
        "counter", "keyblock_below_min_score_total", "Results left out because their score is below min_score", BY_MODEL
    ),
    "emptied": Metric(
        "counter",
        "keyblock_emptied_answers_total",
        "Answers without any result, since no document's score reaches min_score",
        BY_MODEL,
    ),
    "context_tokens": Metric(
        "counter",
        "keyblock_context_tokens_total",
        f"Tokens of pruned answers, in the contexts and in the documents of the results: {_list(PRUNED)}",
        {"of": PRUNED, MODEL: ()},
    ),
    "selected": Metric(
        "counter",
        "keyblock_selected_documents_total",
        "Documents of which some blocks were chosen, by what chose them: evidence, the model, or position (no block stood out)",
        {"by": SELECTED_BY, MODEL: ()},
    ),
    "unscored": Metric("counter", "keyblock_unscored_documents_total", "Documents without a block, ranked last", BY_MODEL),
    "blocks": Metric(
        "counter",
        "keyblock_blocks_total",
        "Blocks of answered requests: considered (in all documents read), asked (scored by the model to select), scored (to rank)",
        {"step": BLOCKS, MODEL: ()},
    ),
    "degraded": Metric(
        "counter",
        "keyblock_degraded_total",
        f"How a deadline, or a failing upstream or store, made rankings cheaper; one request may count often: {_list(DEGRADED)}",
        {"how": DEGRADED, MODEL: ()},
    ),
    "degraded_requests": Metric(
        "counter", "keyblock_degraded_requests_total", "Requests with a deadline whose ranking was cheaper than usual", BY_MODEL
    ),
    "deadlines": Metric(
        "counter",
        "keyblock_deadlines_total",
        "Answered requests with a deadline: met; late by at most the larger of 50 ms and a batch, as promised; missed",
        {"outcome": DEADLINES, MODEL: ()},
    ),
    "tokens": Metric(
        "counter", "keyblock_tokens_total", "Tokens that the model read, to select and to score, without padding", BY_MODEL
    ),
    "padding": Metric("counter", "keyblock_padding_tokens_total", "Padding tokens that the model read", BY_MODEL),
    "batches": Metric(
        "counter",
        "keyblock_batches_total",
        f"Batches that the model has run, by outcome: {_list(BATCHES)}",
        {"outcome": BATCHES, MODEL: ()},
    ),
    "batch_seconds": Metric("histogram", "keyblock_batch_seconds", "Time that the model takes for a batch", BY_MODEL),
    "batch_fill": Metric(
        "histogram",
        "keyblock_batch_fill_ratio",
        "Sequences of a batch, as a share of the most sequences that a batch of its length may have",
        BY_MODEL,
        RATIOS,
    ),
    "upstream_requests": Metric(
        "counter",
        "keyblock_upstream_requests_total",
        f"Requests to the upstream by outcome: {_list(UPSTREAM_OUTCOMES)}",
        {"outcome": UPSTREAM_OUTCOMES, MODEL: ()},
    ),
    "upstream_seconds": Metric(
        "histogram", "keyblock_upstream_seconds", "Time until the upstream answers, retries included", BY_MODEL
    ),
    "queued": Metric("gauge", "keyblock_queue_sequences", "Sequences that wait for the model, to select or to score", BY_MODEL),
    "queued_requests": Metric("gauge", "keyblock_queue_requests", "Requests with sequences that wait for the model", BY_MODEL),
    "queue_age": Metric(
        "gauge",
        "keyblock_queue_age_seconds",
        "Time that the oldest request with waiting sequences has waited",
        BY_MODEL,
    ),
    "cache_lookups": Metric(
        "counter", "keyblock_cache_lookups_total", f"Documents looked up in the cache: {_list(LOOKUPS)}", {"outcome": LOOKUPS}
    ),
    "cache_bytes": Metric("gauge", "keyblock_cache_bytes", "Bytes of prepared documents in the cache"),
    "score_lookups": Metric(
        "counter",
        "keyblock_score_cache_lookups_total",
        f"Sequences looked up in the cache of scores, to select and to score: {_list(LOOKUPS)}",
        {"outcome": LOOKUPS, MODEL: ()},
    ),
    "score_cache_bytes": Metric("gauge", "keyblock_score_cache_bytes", "Bytes of scores in the cache"),
    "store_requests": Metric(
        "counter",
        "keyblock_store_requests_total",
        f"Requests to /documents by outcome: {_list(OUTCOMES)}",
        {"method": STORE_METHODS, "outcome": OUTCOMES},
    ),
    "store_lookups": Metric(
        "counter",
        "keyblock_store_lookups_total",
        f"Documents looked up by id alone: {_list(STORE_LOOKUPS)}",
        {"outcome": STORE_LOOKUPS},
    ),
    "stored": Metric("counter", "keyblock_stored_documents_total", "Documents that were stored and acknowledged"),
    "store_errors": Metric(
        "counter", "keyblock_store_errors_total", f"Errors of the store, by reason: {_list(STORE_ERRORS)}", {"why": STORE_ERRORS}
    ),
    "store_up": Metric(
        "gauge",
        "keyblock_store_up",
        "1 if the store of documents answers; 0 if it does not, or if there is no store",
    ),
    "store_documents": Metric("gauge", "keyblock_store_documents", "Documents in the store"),
    "store_bytes": Metric("gauge", "keyblock_store_bytes", "Bytes that the store takes"),
    "understood": Metric(
        "counter", "keyblock_understood_documents_total", "Stored documents that the sentence encoder has read in the background"
    ),
    "store_unread": Metric("gauge", "keyblock_store_unread_documents", "Stored documents that wait for the sentence encoder"),
    "store_evicted": Metric("gauge", "keyblock_store_evicted_documents", "Documents removed to make room since the store started"),
    "store_away": Metric("gauge", "keyblock_store_away", "Servers of the store's cluster that do not answer while others do"),
    "ready": Metric(
        "gauge",
        "keyblock_ready",
        "1 if the service can serve requests: it is warmed up, and the model's thread lives",
    ),
    "reloads": Metric(
        "counter",
        "keyblock_reloads_total",
        f"Reloads of the bundles, by outcome: {_list(RELOADS)}",
        {"outcome": RELOADS},
    ),
    "load": Metric(
        "gauge",
        "keyblock_model_load_seconds",
        "Time to load a bundle and open its graphs, and time to run every batch shape once",
        {"phase": LOADS, MODEL: ()},
    ),
    "fell_back": Metric(
        "gauge",
        "keyblock_provider_fell_back",
        "1 if this build of ONNX Runtime could use a GPU but uses none, so the model computes elsewhere",
        BY_MODEL,
    ),
    "gpu_memory": Metric("gauge", "keyblock_gpu_memory_used_bytes", "Memory in use on the GPU, by all processes", {"gpu": ()}),
    "gpu_memory_total": Metric("gauge", "keyblock_gpu_memory_total_bytes", "Memory of the GPU", {"gpu": ()}),
    "gpu_utilization": Metric(
        "gauge",
        "keyblock_gpu_utilization_ratio",
        "Share of about the last second in which the GPU computed",
        {"gpu": ()},
    ),
    "build": Metric(
        "gauge",
        "keyblock_build_info",
        "Always 1; one series for each served bundle",
        {"version": (), MODEL: (), "precision": (), "provider": ()},
    ),
}


class Metrics:
    """The table's instruments, in a registry of their own; `of` gives a view for one model, which fills in the model's label.

    Raises KeyError for a name that is not in the table, and ValueError for such a label or value.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        for collector in (ProcessCollector, PlatformCollector, GCCollector):
            collector(registry=self.registry)
        self._model = ""
        self._forgotten: set[str] = set()  # names of models: a request that ends late must not bring their series back
        self._instruments = {key: _instrument(row, self.registry) for key, row in TABLE.items()}
        self._start_at_zero(key for key, row in TABLE.items() if MODEL not in row.labels)

    def of(self, model: str) -> Self:
        """The same instruments for one model."""
        view = copy.copy(self)
        view._model = model
        self._forgotten.discard(model)
        view._start_at_zero(key for key, row in TABLE.items() if MODEL in row.labels)
        return view

    def forget(self, key: str, **labels: str) -> None:
        """Stop reporting the series of these labels."""
        self._instruments[key].remove_by_labels(labels)

    def forget_model(self) -> None:
        """Remove the series of a model that is no longer served; its last requests do not bring them back, only `of` does."""
        self._forgotten.add(self._model)
        for key, row in TABLE.items():
            if MODEL in row.labels:
                self.forget(key, **{MODEL: self._model})

    def add(self, key: str, amount: float = 1, **labels: str) -> None:
        """Add to a counter."""
        if (child := self._child(Counter, key, labels)) is not None:
            child.inc(amount)

    def set(self, key: str, value: float, **labels: str) -> None:
        """Set a gauge."""
        if (child := self._child(Gauge, key, labels)) is not None:
            child.set(value)

    def observe(self, key: str, value: float, trace_id: str | None = None, **labels: str) -> None:
        """Add a value to a histogram, with the id of a trace as an exemplar of its bucket."""
        if (child := self._child(Histogram, key, labels)) is not None:
            child.observe(value, None if trace_id is None else {"trace_id": trace_id})

    def _start_at_zero(self, keys: Iterable[str]) -> None:
        """Start series at 0, since a rate needs a beginning; gauges of a model wait until they are measured."""
        for key in keys:
            row = TABLE[key]
            if (row.kind == "gauge" and MODEL in row.labels) or not row.labels:
                continue
            values = [(self._model,) if label == MODEL else allowed for label, allowed in row.labels.items()]
            for combination in product(*values):
                self._instruments[key].labels(*combination)

    def _child(self, kind: type[T], key: str, labels: dict[str, str]) -> T | None:
        """The series; None for a forgotten model."""
        instrument, row = self._instruments[key], TABLE[key]
        if not isinstance(instrument, kind):
            raise KeyError(f"{key} is a {row.kind}")
        if not row.labels:
            if labels:
                raise ValueError(f"{row.name} has no labels, and {labels} are given")
            return instrument
        if MODEL in row.labels:
            labels.setdefault(MODEL, self._model)
        for label, value in labels.items():
            if (allowed := row.labels.get(label)) and value not in allowed:
                raise ValueError(f"{row.name}: the label {label} has no value {value!r}, only {', '.join(allowed)}")
        return None if labels.get(MODEL) in self._forgotten else instrument.labels(**labels)


def _instrument(row: Metric, registry: CollectorRegistry) -> Counter | Gauge | Histogram:
    labels = tuple(row.labels)
    if row.kind == "counter":
        return Counter(row.name, row.help, labels, registry=registry)
    if row.kind == "gauge":
        return Gauge(row.name, row.help, labels, registry=registry)
    return Histogram(row.name, row.help, labels, registry=registry, buckets=row.buckets)
