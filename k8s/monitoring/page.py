"""The page docs/run/metrics.md, made from the table of metrics."""

from service.telemetry.metrics import BUCKETS, MODEL, TABLE, Metric

OPEN = {
    MODEL: "the served bundles",
    "gpu": "the GPUs that the process sees, by number",
    "version": "that of the service",
    "precision": "that of the arithmetic",
    "provider": "where the model runs",
}
HEAD = f"""# Metrics

`GET /metrics` reports these metrics to Prometheus, and to OpenMetrics scrapers with trace ids as exemplars. Dashboards and
alerts use them: [monitor](monitor.md).

`python -m k8s.monitoring` writes this page from the table in `service/telemetry/metrics.py`, and a test checks that they agree.

Histograms of seconds have the buckets {", ".join(f"{bound:g}" for bound in BUCKETS)}. Counters and histograms exist
from the start, with the value 0. The table lists the values of a label, unless the process finds them at its start. So the
number of series does not depend on what clients send. Process, platform and garbage collector are reported as by all Python
services (`process_*`, `python_*`).

| metric | type | labels | |
|---|---|---|---|
"""


def metrics_page() -> str:
    """The text of the page."""
    return HEAD + "".join(f"| `{row.name}` | {row.kind} | {_labels(row)} | {row.help} |\n" for row in TABLE.values())


def _labels(row: Metric) -> str:
    return "; ".join(f"`{label}`: {', '.join(values) or OPEN[label]}" for label, values in row.labels.items())
