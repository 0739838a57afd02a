"""Dashboards, alerts and the page of metrics. `python -m k8s.monitoring` writes them from `service/telemetry/metrics.py`."""
