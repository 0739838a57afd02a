"""Compares the KeyBlock service with other rerankers on the same weights: `python -m benchmarks.performance --help`."""
