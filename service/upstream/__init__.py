"""Scores passages with a reranker that runs elsewhere."""
