"""KeyBlock as it is served, beside the rerankers that people run on the same weights: `python -m benchmarks.performance --help`."""

LONGEST = 512  # tokens: where the model ends, and every peer cuts
BUDGETS = (LONGEST, 256, 128)
