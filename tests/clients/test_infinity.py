"""infinity_client: what Infinity's own API description generates."""

import asyncio

import pytest
from infinity_client import AuthenticatedClient, Client
from infinity_client.api.default import rerank
from infinity_client.errors import UnexpectedStatus
from infinity_client.models import HTTPValidationError, RerankInput, ReRankResult
from keyed import KEY, UNKNOWN, WRONG
from page import run
from question import DOCUMENTS, QUERY, check
from running import Service


def ask(base: str, query: str = QUERY, **options: object) -> ReRankResult | HTTPValidationError | None:
    return rerank.sync(client=Client(base_url=base), body=RerankInput(query=query, documents=DOCUMENTS, **options))


def test_the_snippet(service: Service) -> None:
    check(run("infinity_client", service.url), top_n=2)


def test_long_documents(base: str) -> None:
    answer = ask(base)
    assert isinstance(answer, ReRankResult)
    check([(result.index, result.relevance_score) for result in answer.results])
    assert answer.model == "keyb-hybrid-minilm-l6"
    assert answer.usage.total_tokens > 0


def test_documents_are_objects(service: Service) -> None:
    """Infinity's own are strings; its client hands on what comes."""
    answer = ask(service.url, return_documents=True)
    assert [result.document["text"] for result in answer.results] == [DOCUMENTS[result.index] for result in answer.results]


def test_raw_scores(service: Service) -> None:
    answer = ask(service.url, raw_scores=True)
    assert min(result.relevance_score for result in answer.results) < 0


def test_asynchronously(service: Service) -> None:
    body = RerankInput(query=QUERY, documents=DOCUMENTS, top_n=1)
    answer = asyncio.run(rerank.asyncio(client=Client(base_url=service.url), body=body))
    check([(result.index, result.relevance_score) for result in answer.results], top_n=1)


def test_an_error_says_what_is_wrong(service: Service) -> None:
    answer = ask(service.url, " ")
    assert isinstance(answer, HTTPValidationError)
    assert [(error.loc, error.msg) for error in answer.detail] == [
        (["body", "query"], "is empty: say what to rank the documents for")
    ]


def test_its_key_is_sent(guarded: Service) -> None:
    body = RerankInput(query=QUERY, documents=DOCUMENTS)
    answer = rerank.sync(client=AuthenticatedClient(base_url=guarded.url, token=KEY), body=body)
    check([(result.index, result.relevance_score) for result in answer.results])
    wrong = AuthenticatedClient(base_url=guarded.url, token=WRONG, raise_on_unexpected_status=True)
    with pytest.raises(UnexpectedStatus, match=UNKNOWN):
        rerank.sync(client=wrong, body=body)


def test_it_says_that_the_service_is_busy_where_it_is_asked_to_raise(service: Service) -> None:
    client = Client(base_url=service.url, raise_on_unexpected_status=True)
    with service.full(), pytest.raises(UnexpectedStatus, match="busy: 1 requests are in flight"):
        rerank.sync(client=client, body=RerankInput(query=QUERY, documents=DOCUMENTS))
