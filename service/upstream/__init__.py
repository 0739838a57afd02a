"""A reranker that runs elsewhere, asked about passages."""
