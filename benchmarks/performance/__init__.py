"""Compares the KeyBlock service with other rerankers on the same weights: `python -m benchmarks.performance --help`."""

LONGEST = 512  # tokens: the model's limit, at which every peer truncates
BUDGETS = (LONGEST, 256, 128)
