"""LangChain: its compressors for Cohere and for Infinity."""

from typing import Any

import pytest
from cohere.errors import UnauthorizedError, UnprocessableEntityError
from contract import Contract, Library
from infinity_client import Client
from langchain_cohere import CohereRerank
from langchain_community.document_compressors import InfinityRerank
from langchain_core.documents import Document
from question import DOCUMENTS, QUERY, check
from running import Service

FOUND = [Document(text, metadata={"number": number}) for number, text in enumerate(DOCUMENTS)]


def cohere(url: str, key: str, top_n: int) -> Any:
    return CohereRerank(model="any", cohere_api_key=key, base_url=url, top_n=top_n)


def infinity(url: str, key: str, top_n: int) -> Any:
    """It takes a Client and no AuthenticatedClient: the header is given by hand."""
    return InfinityRerank(client=Client(base_url=url, headers={"Authorization": f"Bearer {key}"}), model="any", top_n=top_n)


def library(make: Any, snippet: str, *errors: type[Exception], **more: Any) -> Library:
    def rank(url: str, query: str, key: str) -> list[tuple[int, float]]:
        compressed = make(url, key, 3).compress_documents(FOUND, query)
        return [(document.metadata["number"], document.metadata["relevance_score"]) for document in compressed]

    return Library(rank, snippet, *errors, **more)


# InfinityRerank says nothing of an error: it seeks results in whatever comes
LIBRARIES = {
    "CohereRerank": library(cohere, "LangChain, CohereRerank", UnprocessableEntityError, UnauthorizedError),
    "InfinityRerank": library(infinity, "LangChain, InfinityRerank", KeyError, TypeError, TypeError, silent=True),
}


class TestLangChain(Contract):
    pass


@pytest.mark.parametrize("make", [cohere, infinity])
def test_documents_stay_as_they_are(base: str, make: Any) -> None:
    compressed = make(base, "any", 2).compress_documents(FOUND, QUERY)
    assert [document.page_content for document in compressed] == [DOCUMENTS[document.metadata["number"]] for document in compressed]


@pytest.mark.parametrize("make", [cohere, infinity])
def test_all_of_them(service: Service, make: Any) -> None:
    ranked = make(service.url, "any", 2).rerank(DOCUMENTS, QUERY, top_n=None)
    check([(result["index"], result["relevance_score"]) for result in ranked])
