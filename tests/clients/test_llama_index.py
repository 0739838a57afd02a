"""LlamaIndex: its postprocessors for Cohere and for text-embeddings-inference."""

from typing import Any

import pytest
from cohere.errors import UnauthorizedError, UnprocessableEntityError
from contract import KEY, Contract, Library
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference
from question import DOCUMENTS, QUERY, check
from running import Service


def cohere(url: str, key: str, top_n: int = 3) -> Any:
    return CohereRerank(api_key=key, base_url=url, top_n=top_n)


def tei(url: str, key: str, top_n: int = 3) -> Any:
    return TextEmbeddingInference(base_url=url, auth_token=f"Bearer {key}", top_n=top_n)


def rank(ranker: Any, query: str = QUERY) -> list[tuple[int, float]]:
    nodes = [NodeWithScore(node=TextNode(text=text, id_=str(number))) for number, text in enumerate(DOCUMENTS)]
    return [(int(node.node_id), node.score) for node in ranker.postprocess_nodes(nodes, query_str=query)]


def library(make: Any, snippet: str, *errors: type[Exception], **more: Any) -> Library:
    return Library(lambda url, query, key: rank(make(url, key), query), snippet, *errors, **more)


# the one for TEI says nothing of an error: it counts the members of whatever comes
LIBRARIES = {
    "CohereRerank": library(cohere, "LlamaIndex, CohereRerank", UnprocessableEntityError, UnauthorizedError),
    "TextEmbeddingInference": library(tei, "LlamaIndex, TextEmbeddingInference", *[AssertionError] * 3, silent=True),
}


class TestLlamaIndex(Contract):
    pass


@pytest.mark.parametrize("make", [cohere, tei])
def test_top_n(service: Service, make: Any) -> None:
    check(rank(make(service.url, "any", 1)), top_n=1)


def test_teis_token_is_sent_as_it_is(guarded: Service) -> None:
    check(rank(TextEmbeddingInference(base_url=guarded.url, auth_token=KEY, top_n=3)))
