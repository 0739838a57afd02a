"""A request of each dialect; /docs shows them and the tests send them."""

from typing import Any, NamedTuple

from pydantic import BaseModel

from keyblock.wire import NimRequest, QueriesRequest, RerankRequest, ScoreRequest, TeiRequest, VoyageRequest


class Example(NamedTuple):
    """A request.

    Attributes:
        model: of the request's body.
        summary: the dialect, and a feature.
        request: the body.
    """

    model: type[BaseModel]
    summary: str
    request: dict[str, Any]


QUERY = "Which river flows through Vienna?"
DANUBE = "The Danube is Europe's second-longest river. It flows through Vienna, Bratislava, Budapest and Belgrade."
THAMES = "The Thames flows through southern England, and through London."
BASE_REQUEST: dict[str, Any] = {"query": QUERY, "documents": [DANUBE, THAMES]}

EXAMPLES = {
    "native": Example(
        RerankRequest,
        "KeyBlock: titles and ids, the blocks that decided it, a time budget",
        {
            "query": QUERY,
            "documents": [DANUBE, {"id": "thames", "title": "Thames", "text": THAMES}],
            "top_n": 2,
            "return_blocks": True,
            "deadline_ms": 2000,
        },
    ),
    "queries": Example(
        QueriesRequest,
        "KeyBlock: several queries, which share the documents",
        {
            "queries": [{"query": QUERY}, {"query": "Which river flows through London?", "candidates": [1]}],
            "documents": [DANUBE, THAMES],
        },
    ),
    "cohere_v1": Example(
        RerankRequest,
        "Cohere v1, at /v1/rerank",
        {
            "model": "rerank-v3.5",
            "query": QUERY,
            "documents": [{"text": DANUBE}, {"text": THAMES}],
            "top_n": 1,
            "return_documents": True,
        },
    ),
    "cohere_v2": Example(
        RerankRequest, "Cohere v2, at /v2/rerank", {"model": "rerank-v3.5", **BASE_REQUEST, "top_n": 1, "max_tokens_per_doc": 128}
    ),
    "jina": Example(
        RerankRequest,
        "Jina, at /v1/rerank",
        {"model": "jina-reranker-v2-base-multilingual", **BASE_REQUEST, "top_n": 2, "return_documents": True},
    ),
    "vllm": Example(
        RerankRequest,
        "vLLM: one document may be a single text",
        {"model": "BAAI/bge-reranker-v2-m3", "query": QUERY, "documents": DANUBE, "top_n": 0},
    ),
    "infinity": Example(
        RerankRequest,
        "Infinity",
        {"model": "default/not-specified", **BASE_REQUEST, "return_documents": False, "raw_scores": True},
    ),
    "tei": Example(
        TeiRequest,
        "text-embeddings-inference: `texts` in, a bare list out",
        {"query": QUERY, "texts": [DANUBE, THAMES], "return_text": True},
    ),
    "voyage": Example(
        VoyageRequest,
        "Voyage, at /v1/rerank: `top_k` in, `data` out",
        {"model": "rerank-2.5", **BASE_REQUEST, "top_k": 1, "return_documents": True},
    ),
}
SCORE_EXAMPLES = {
    "score": Example(ScoreRequest, "vLLM: scores in the order of the documents", {"queries": QUERY, "documents": [DANUBE, THAMES]})
}
NIM_EXAMPLES = {
    "nim": Example(
        NimRequest, "NVIDIA's NIM", {"query": {"text": QUERY}, "passages": [{"text": DANUBE}, {"text": THAMES}], "truncate": "END"}
    )
}

ANSWERS: dict[str, Any] = {
    "native": {
        "id": "rerank-0c7e6f4f5f1f4d3f9b0a4f4d1c2b3a49",
        "object": "rerank",
        "created": 1790000000,
        "model": "keyb-hybrid-minilm-l6",
        "results": [
            {"index": 0, "relevance_score": 0.0284, "blocks": [{"start": 0, "end": 105, "score": 3.4}]},
            {"index": 1, "relevance_score": 0.0012, "id": "thames", "blocks": [{"start": 0, "end": 62, "score": 1.5}]},
        ],
        "usage": {"prompt_tokens": 60, "total_tokens": 60},
        "meta": {
            "degraded": False,
            "warnings": [],
            "timings_ms": {"parse": 0.1, "prepare": 0.8, "queue": 0.1, "model": 4.2, "aggregate": 0.1, "total": 5.3},
            "tokens_per_document": 128,
            "api_version": {"version": "1"},
            "billed_units": {"search_units": 1},
            "tokens": {"input_tokens": 60, "output_tokens": 0},
        },
    },
    "tei": [{"index": 0, "score": 0.0284, "text": DANUBE}, {"index": 1, "score": 0.0012, "text": THAMES}],
}
