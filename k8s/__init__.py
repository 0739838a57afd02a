"""Manifests and components that run the service on Kubernetes; the only Python package here writes the monitoring files."""
