"""Milvus 2.6: a rerank function, by milvus.io/docs/vllm-ranker.md.

Milvus asks `endpoint` + /rerank with 32 texts a request unless max_client_batch_size says more. Its request was rebuilt from
internal/util/function/models/vllm (commit 3ae9ca06) and sent to KeyBlock; Milvus itself was not run.
"""

from pymilvus import Function, FunctionType, MilvusClient


def search(client: MilvusClient, query: str, vector: list[float]) -> list:
    """The ten best rows of the collection `texts`, whose VARCHAR field is `text`."""
    ranker = Function(
        name="keyblock",
        input_field_names=["text"],
        function_type=FunctionType.RERANK,
        params={
            "reranker": "model",
            "provider": "vllm",
            "queries": [query],
            "endpoint": "http://keyblock:8000",
            "max_client_batch_size": 100,
        },
    )
    return client.search("texts", data=[vector], anns_field="vector", limit=10, output_fields=["text"], ranker=ranker)
