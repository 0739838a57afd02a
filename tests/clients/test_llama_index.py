"""LlamaIndex: its postprocessors for Cohere and for text-embeddings-inference."""

from typing import Any

import pytest
from cohere.errors import UnauthorizedError, UnprocessableEntityError
from keyed import KEY, UNKNOWN, WRONG
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.postprocessor.cohere_rerank import CohereRerank
from llama_index.postprocessor.tei_rerank import TextEmbeddingInference
from page import run
from question import DOCUMENTS, QUERY, check
from running import Service

KINDS = [CohereRerank, TextEmbeddingInference]


def nodes() -> list[NodeWithScore]:
    return [NodeWithScore(node=TextNode(text=text, id_=str(number))) for number, text in enumerate(DOCUMENTS)]


def make(kind: type, base: str, **more: Any) -> Any:
    """A postprocessor of this kind that asks the service at this base."""
    return (
        CohereRerank(api_key="any", base_url=base, **more)
        if kind is CohereRerank
        else TextEmbeddingInference(base_url=base, **more)
    )


def pairs(ranked: list[NodeWithScore]) -> list[tuple[int, float]]:
    return [(int(node.node_id), node.score) for node in ranked]


@pytest.mark.parametrize("heading", ["LlamaIndex, CohereRerank", "LlamaIndex, TextEmbeddingInference"])
def test_the_snippet(service: Service, heading: str) -> None:
    check(run(heading, service.url), top_n=2)


@pytest.mark.parametrize("top_n", [1, 3])
@pytest.mark.parametrize("kind", KINDS)
def test_long_documents(base: str, kind: type, top_n: int) -> None:
    check(pairs(make(kind, base, top_n=top_n).postprocess_nodes(nodes(), query_str=QUERY)), top_n)


def test_a_bare_token(service: Service) -> None:
    ranker = TextEmbeddingInference(base_url=service.url, auth_token="any")
    check(pairs(ranker.postprocess_nodes(nodes(), query_str=QUERY)))


def test_an_error_says_what_is_wrong(service: Service) -> None:
    with pytest.raises(UnprocessableEntityError) as caught:
        make(CohereRerank, service.url).postprocess_nodes(nodes(), query_str=" ")
    assert caught.value.body["message"] == "query: is empty: say what to rank the documents for"


def test_the_one_for_tei_says_nothing_of_an_error(service: Service) -> None:
    """It counts the members of whatever comes, an error too."""
    with pytest.raises(AssertionError):
        make(TextEmbeddingInference, service.url).postprocess_nodes(nodes(), query_str=" ")
    with service.full(), pytest.raises(AssertionError):
        make(TextEmbeddingInference, service.url).postprocess_nodes(nodes(), query_str=QUERY)


def test_its_key_is_sent(guarded: Service) -> None:
    """TEI's as it is, without "Bearer"; of a wrong one it says nothing, as of any error."""
    for token in (KEY, f"Bearer {KEY}"):
        ranker = TextEmbeddingInference(base_url=guarded.url, auth_token=token, top_n=3)
        check(pairs(ranker.postprocess_nodes(nodes(), query_str=QUERY)))
    with pytest.raises(AssertionError):
        TextEmbeddingInference(base_url=guarded.url, auth_token=WRONG).postprocess_nodes(nodes(), query_str=QUERY)
    cohere = CohereRerank(api_key=KEY, base_url=guarded.url, top_n=3)
    check(pairs(cohere.postprocess_nodes(nodes(), query_str=QUERY)))
    with pytest.raises(UnauthorizedError, match=UNKNOWN):
        CohereRerank(api_key=WRONG, base_url=guarded.url).postprocess_nodes(nodes(), query_str=QUERY)


def test_it_comes_back_when_there_is_room(service: Service) -> None:
    with service.full_once():
        ranked = make(CohereRerank, service.url, top_n=3).postprocess_nodes(nodes(), query_str=QUERY)
    check(pairs(ranked))
