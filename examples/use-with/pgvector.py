"""pgvector has no hook for a reranker: retrieve with psycopg 3, then rank the texts.

By the README of pgvector 0.8; not run.
"""

import psycopg

from keyblock.client import Client


def search(connection: psycopg.Connection, keyblock: Client, query: str, vector: list[float]) -> list[tuple[int, str, float]]:
    """The ten best rows of `texts (id bigint, text text, embedding vector)`: id, text, score."""
    nearest = "SELECT id, text FROM texts ORDER BY embedding <=> %s::vector LIMIT 100"
    rows = connection.execute(nearest, (str(vector),)).fetchall()
    ranking = keyblock.rerank(query, [text for _, text in rows], top_n=10)
    return [(*rows[result.index], result.relevance_score) for result in ranking]
