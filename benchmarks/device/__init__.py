"""What the host of a fast GPU can feed it, on a machine without one: the service as it is, in front of a simulated device."""
