"""cohere: its clients of v1 and v2."""

from pathlib import Path
from typing import Any

import cohere
import pytest
from cohere.errors import TooManyRequestsError, UnauthorizedError, UnprocessableEntityError
from contract import BUSY, Contract, Library
from page import run
from question import DOCUMENTS, QUERY, check, pairs
from running import Service


def library(kind: type, snippet: str, awaiting: type) -> Library:
    def asked(kind: type, url: str, query: str, key: str) -> Any:
        return kind(api_key=key, base_url=url).rerank(model="any", query=query, documents=DOCUMENTS)

    async def awaited(url: str, query: str, key: str) -> list[tuple[int, float]]:
        return pairs((await asked(awaiting, url, query, key)).results)

    def rank(url: str, query: str, key: str) -> list[tuple[int, float]]:
        return pairs(asked(kind, url, query, key).results)

    return Library(rank, snippet, UnprocessableEntityError, UnauthorizedError, awaited=awaited)


LIBRARIES = {
    "v1": library(cohere.Client, "cohere, v1", cohere.AsyncClient),
    "v2": library(cohere.ClientV2, "cohere, v2", cohere.AsyncClientV2),
}


class TestCohere(Contract):
    pass


def test_the_snippet_with_blocks(service: Service) -> None:
    ((start, end),) = run("cohere, with the blocks", service.url)
    assert 0 < start < end


def test_v2(base: str) -> None:
    client = cohere.ClientV2(api_key="any", base_url=base)
    answer = client.rerank(model="rerank-v3.5", query=QUERY, documents=DOCUMENTS, top_n=2, max_tokens_per_doc=4096)
    check(pairs(answer.results), top_n=2)
    assert answer.meta.api_version.version == "2"
    assert answer.meta.billed_units.search_units == 1
    assert answer.meta.tokens.input_tokens > 0
    assert "max_tokens_per_doc" in answer.meta.warnings[0]


def test_v1_with_documents(base: str) -> None:
    client = cohere.Client(api_key="any", base_url=base)
    documents = [{"text": text} for text in DOCUMENTS]
    answer = client.rerank(query=QUERY, documents=documents, return_documents=True, max_chunks_per_doc=10, rank_fields=["text"])
    check(pairs(answer.results))
    assert [result.document.text for result in answer.results] == [DOCUMENTS[result.index] for result in answer.results]
    assert answer.meta.api_version.version == "1"


@pytest.mark.parametrize("kind", [cohere.Client, cohere.ClientV2])
def test_an_errors_body_is_the_services(service: Service, kind: type) -> None:
    with pytest.raises(UnprocessableEntityError) as caught:
        kind(api_key="any", base_url=service.url).rerank(model="any", query=" ", documents=DOCUMENTS)
    assert caught.value.body["message"] == "query: is empty: say what to rank the documents for"


def test_a_service_that_warms_up_is_waited_for(tmp_path: Path) -> None:
    """It answers 503 until then, and says when to come back."""
    service = Service(tmp_path / "log", until="/health/live")
    client = cohere.ClientV2(api_key="any", base_url=service.url)
    answer = client.rerank(model="any", query=QUERY, documents=DOCUMENTS, request_options={"max_retries": 60})
    service.stop()
    check(pairs(answer.results))


def test_without_retries_it_says_that_the_service_is_busy(service: Service) -> None:
    client = cohere.ClientV2(api_key="any", base_url=service.url)
    with service.full(), pytest.raises(TooManyRequestsError) as caught:
        client.rerank(model="any", query=QUERY, documents=DOCUMENTS, request_options={"max_retries": 0})
    assert caught.value.body["message"].startswith(BUSY)
    assert caught.value.headers["retry-after"] == "1"
