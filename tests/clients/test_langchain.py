"""LangChain: its compressors for Cohere and for Infinity."""

from typing import Any

import pytest
from cohere.errors import UnauthorizedError, UnprocessableEntityError
from infinity_client import Client
from keyed import KEY, UNKNOWN, WRONG
from langchain_cohere import CohereRerank
from langchain_community.document_compressors import InfinityRerank
from langchain_core.documents import Document
from page import run
from question import DOCUMENTS, QUERY, check
from running import Service

FOUND = [Document(text, metadata={"number": number}) for number, text in enumerate(DOCUMENTS)]
KINDS = [CohereRerank, InfinityRerank]


def make(kind: type, base: str, **more: Any) -> Any:
    """A compressor of this kind that asks the service at this base."""
    if kind is CohereRerank:
        return CohereRerank(model="any", cohere_api_key="any", base_url=base, **more)
    return InfinityRerank(client=Client(base_url=base), model="any", **more)


@pytest.mark.parametrize("heading", ["LangChain, CohereRerank", "LangChain, InfinityRerank"])
def test_the_snippet(service: Service, heading: str) -> None:
    check(run(heading, service.url), top_n=2)


@pytest.mark.parametrize("kind", KINDS)
def test_long_documents(base: str, kind: type) -> None:
    compressed = make(kind, base, top_n=2).compress_documents(FOUND, QUERY)
    check([(document.metadata["number"], document.metadata["relevance_score"]) for document in compressed], top_n=2)
    assert [document.page_content for document in compressed] == [DOCUMENTS[document.metadata["number"]] for document in compressed]


@pytest.mark.parametrize("kind", KINDS)
def test_all_of_them(service: Service, kind: type) -> None:
    ranked = make(kind, service.url).rerank(DOCUMENTS, QUERY, top_n=None)
    check([(result["index"], result["relevance_score"]) for result in ranked])


def test_an_error_says_what_is_wrong(service: Service) -> None:
    with pytest.raises(UnprocessableEntityError) as caught:
        make(CohereRerank, service.url).compress_documents(FOUND, "")
    assert caught.value.body["message"] == "query: is empty: say what to rank the documents for"


def test_infinity_rerank_says_nothing_of_an_error(service: Service) -> None:
    """It seeks results in whatever comes, an error too."""
    with pytest.raises(KeyError):
        make(InfinityRerank, service.url).compress_documents(FOUND, "")
    with service.full(), pytest.raises(TypeError):
        make(InfinityRerank, service.url).compress_documents(FOUND, QUERY)


def test_its_key_is_sent(guarded: Service) -> None:
    """InfinityRerank takes a Client and no AuthenticatedClient: the header is given by hand."""
    cohere = CohereRerank(model="any", cohere_api_key=KEY, base_url=guarded.url, top_n=3)
    client = Client(base_url=guarded.url, headers={"Authorization": f"Bearer {KEY}"})
    infinity = InfinityRerank(client=client, model="any", top_n=3)
    for ranker in (cohere, infinity):
        check(
            [
                (document.metadata["number"], document.metadata["relevance_score"])
                for document in ranker.compress_documents(FOUND, QUERY)
            ]
        )
    with pytest.raises(UnauthorizedError, match=UNKNOWN):
        CohereRerank(model="any", cohere_api_key=WRONG, base_url=guarded.url).compress_documents(FOUND, QUERY)


def test_it_comes_back_when_there_is_room(service: Service) -> None:
    with service.full_once():
        compressed = make(CohereRerank, service.url).compress_documents(FOUND, QUERY)
    check([(document.metadata["number"], document.metadata["relevance_score"]) for document in compressed])
