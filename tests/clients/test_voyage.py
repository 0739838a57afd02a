"""Voyage's own client."""

from typing import Any

import voyageai
from contract import Contract, Library
from question import DOCUMENTS, QUERY, check, pairs
from voyageai.error import AuthenticationError, MalformedRequestError


def read(answer: Any) -> list[tuple[int, float]]:
    assert answer.total_tokens > 0
    return pairs(answer.results)


async def awaited(url: str, query: str, key: str) -> list[tuple[int, float]]:
    return read(await voyageai.AsyncClient(api_key=key, base_url=url).rerank(query, DOCUMENTS, "any"))


def rank(url: str, query: str, key: str) -> list[tuple[int, float]]:
    return read(voyageai.Client(api_key=key, base_url=url, max_retries=5).rerank(query, DOCUMENTS, "any"))


LIBRARIES = {"voyageai": Library(rank, "voyageai", MalformedRequestError, AuthenticationError, awaited=awaited)}


class TestVoyage(Contract):
    pass


def test_top_k(base: str) -> None:
    client = voyageai.Client(api_key="any", base_url=base)
    check(read(client.rerank(QUERY, DOCUMENTS, "any", top_k=2)), top_n=2)
