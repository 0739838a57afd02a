"""Qdrant has no hook for a reranker: retrieve with its client, then rank the texts.

Run with qdrant-client 1.20.0 in memory.
"""

from qdrant_client import QdrantClient
from qdrant_client.models import ScoredPoint

from keyblock.client import Client


def search(qdrant: QdrantClient, keyblock: Client, query: str, vector: list[float]) -> list[tuple[ScoredPoint, float]]:
    """The ten best points of the collection `texts`, whose payload has a `text`, with their scores."""
    found = qdrant.query_points("texts", query=vector, limit=100, with_payload=True).points
    ranking = keyblock.rerank(query, [point.payload["text"] for point in found], top_n=10)
    return [(found[result.index], result.relevance_score) for result in ranking]
