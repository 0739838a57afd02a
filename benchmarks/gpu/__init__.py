"""Measures a GPU within half an hour, one part at a time, and writes docs/run/size.md: `python -m benchmarks.gpu --help`."""
