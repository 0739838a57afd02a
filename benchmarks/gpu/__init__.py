"""Measures a GPU within half an hour, one part at a time, and writes docs/gpu.md: `python -m benchmarks.gpu --help`."""
