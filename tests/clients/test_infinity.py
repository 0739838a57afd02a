"""infinity_client: what Infinity's own API description generates."""

from typing import Any

from contract import Contract, Library
from infinity_client import AuthenticatedClient, Client
from infinity_client.api.default import rerank
from infinity_client.errors import UnexpectedStatus
from infinity_client.models import HTTPValidationError, RerankInput, ReRankResult
from question import DOCUMENTS, QUERY, pairs
from running import Service


def ask(base: str, query: str = QUERY, **options: object) -> ReRankResult | HTTPValidationError | None:
    return rerank.sync(client=Client(base_url=base), body=RerankInput(query=query, documents=DOCUMENTS, **options))


def read(answer: Any) -> list[tuple[int, float]]:
    """Its results; an error of the request is an answer to this client, which it does not raise."""
    if isinstance(answer, HTTPValidationError):
        raise ValueError([(error.loc, error.msg) for error in answer.detail])
    return pairs(answer.results)


def call(url: str, query: str, key: str) -> dict[str, Any]:
    client = AuthenticatedClient(base_url=url, token=key, raise_on_unexpected_status=True)
    return {"client": client, "body": RerankInput(query=query, documents=DOCUMENTS)}


async def awaited(url: str, query: str, key: str) -> list[tuple[int, float]]:
    return read(await rerank.asyncio(**call(url, query, key)))


def rank(url: str, query: str, key: str) -> list[tuple[int, float]]:
    return read(rerank.sync(**call(url, query, key)))


LIBRARIES = {"infinity": Library(rank, "infinity_client", ValueError, UnexpectedStatus, UnexpectedStatus, awaited)}


class TestInfinity(Contract):
    pass


def test_the_model_and_the_costs_are_named(base: str) -> None:
    answer = ask(base)
    assert isinstance(answer, ReRankResult)
    assert answer.model == "keyb-hybrid-minilm-l6"
    assert answer.usage.total_tokens > 0


def test_documents_are_objects(service: Service) -> None:
    """Infinity's own are strings; its client hands on what comes."""
    answer = ask(service.url, return_documents=True)
    assert [result.document["text"] for result in answer.results] == [DOCUMENTS[result.index] for result in answer.results]


def test_raw_scores(service: Service) -> None:
    answer = ask(service.url, raw_scores=True)
    assert min(result.relevance_score for result in answer.results) < 0


def test_an_error_names_the_field(service: Service) -> None:
    answer = ask(service.url, " ")
    assert isinstance(answer, HTTPValidationError)
    assert [(error.loc, error.msg) for error in answer.detail] == [
        (["body", "query"], "is empty: say what to rank the documents for")
    ]
