"""Measures how much work a host can feed to a fast GPU, without a GPU: the real service runs in front of a simulated device."""
