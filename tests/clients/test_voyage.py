"""Voyage's own client."""

import asyncio
from typing import Any

import pytest
import voyageai
from keyed import KEY, UNKNOWN, WRONG
from page import run
from question import DOCUMENTS, QUERY, check
from running import Service
from voyageai.error import AuthenticationError, MalformedRequestError


def make(base: str, key: str = "any", **more: Any) -> voyageai.Client:
    return voyageai.Client(api_key=key, base_url=base, **more)


def pairs(answer: Any) -> list[tuple[int, float]]:
    assert answer.total_tokens > 0
    return [(result.index, result.relevance_score) for result in answer.results]


def test_the_snippet(service: Service) -> None:
    check(run("voyageai", service.url), top_n=2)


def test_long_documents(base: str) -> None:
    check(pairs(make(base).rerank(QUERY, DOCUMENTS, "any")))
    check(pairs(make(base).rerank(QUERY, DOCUMENTS, "any", top_k=2)), top_n=2)


def test_asynchronously(service: Service) -> None:
    client = voyageai.AsyncClient(api_key="any", base_url=service.url)
    check(pairs(asyncio.run(client.rerank(QUERY, DOCUMENTS, "any"))))


def test_an_error_says_what_is_wrong(service: Service) -> None:
    with pytest.raises(MalformedRequestError, match="is empty: say what"):
        make(service.url).rerank(" ", DOCUMENTS, "any")


def test_its_key_is_sent(guarded: Service) -> None:
    check(pairs(make(guarded.url, KEY).rerank(QUERY, DOCUMENTS, "any")))
    with pytest.raises(AuthenticationError, match=UNKNOWN):
        make(guarded.url, WRONG).rerank(QUERY, DOCUMENTS, "any")


def test_it_comes_back_when_there_is_room(service: Service) -> None:
    with service.full_once():
        answer = make(service.url, max_retries=5).rerank(QUERY, DOCUMENTS, "any")
    check(pairs(answer))
