"""Vespa ranks with models of its own on its nodes; another reranker is asked after the query, here with pyvespa.

By the documentation of pyvespa's `Vespa.query`; not run.
"""

from vespa.application import Vespa

from keyblock.client import Client


def search(vespa: Vespa, keyblock: Client, query: str) -> list[tuple[dict, float]]:
    """The ten best hits of the schema `texts`, whose summary has a field `text`, with their scores."""
    asked = {"yql": "select * from texts where userQuery()", "query": query, "ranking": "bm25", "hits": 100}
    hits = vespa.query(body=asked).hits
    ranking = keyblock.rerank(query, [hit["fields"]["text"] for hit in hits], top_n=10)
    return [(hits[result.index], result.relevance_score) for result in ranking]
