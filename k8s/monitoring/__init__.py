"""Dashboards, alerts and the page of metrics, written from the table in `service/metrics.py`: `python -m k8s.monitoring`."""
