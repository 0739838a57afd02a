"""Weaviate: the module reranker-cohere with a base URL, by docs.weaviate.io/weaviate/model-providers/cohere/reranker.

The server needs ENABLE_MODULES=reranker-cohere and COHERE_APIKEY=any, or KeyBlock's key; it asks base_url + /v2/rerank.
Its request was rebuilt from modules/reranker-cohere/clients/ranker.go (commit 09f15301) and
sent to KeyBlock; Weaviate itself was not run.
"""

import weaviate
from weaviate.classes.config import Configure, DataType, Property
from weaviate.classes.query import Rerank

with weaviate.connect_to_local() as client:
    texts = client.collections.create(
        "Texts",
        properties=[Property(name="text", data_type=DataType.TEXT)],
        reranker_config=Configure.Reranker.cohere(model="rerank-multilingual-v3.0", base_url="http://keyblock:8000"),
    )
    query = "notice period of a flat"
    for found in texts.query.bm25(query, limit=50, rerank=Rerank(prop="text", query=query)).objects:
        print(found.metadata.rerank_score, found.properties["text"])
