"""docs/metrics.md: the table of metrics as a page."""

from service.telemetry.metrics import BUCKETS, MODEL, TABLE, Metric

OPEN = {
    MODEL: "the bundles that are served",
    "gpu": "those that the process sees, by number",
    "version": "of the service",
    "precision": "of the arithmetic",
    "provider": "where the model runs",
}
HEAD = f"""# Metrics

`GET /metrics` reports these to Prometheus, and to OpenMetrics scrapers with trace ids as exemplars. What is made of them,
dashboards and alerts: [monitoring.md](monitoring.md).

This page is written by `python -m k8s.monitoring` from the table in `service/telemetry/metrics.py`, and a test holds it to that.

Histograms of seconds have the buckets {", ".join(f"{bound:g}" for bound in BUCKETS)}. Counters and histograms are there
from the start, as 0. The values of every label are listed here, or are what the process finds at its start: whatever clients
send, the number of series stays the same. Process, platform and garbage collector are reported as by all Python services
(`process_*`, `python_*`).

| metric | type | labels | |
|---|---|---|---|
"""


def metrics_page() -> str:
    """The page."""
    return HEAD + "".join(f"| `{row.name}` | {row.kind} | {_labels(row)} | {row.help} |\n" for row in TABLE.values())


def _labels(row: Metric) -> str:
    return "; ".join(f"`{label}`: {', '.join(values) or OPEN[label]}" for label, values in row.labels.items())
