"""What runs the service on Kubernetes; of Python only the monitoring is written here."""
