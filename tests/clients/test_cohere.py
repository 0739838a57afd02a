"""cohere: its clients of v1 and v2."""

import asyncio
from pathlib import Path

import cohere
import pytest
from cohere.errors import TooManyRequestsError, UnauthorizedError, UnprocessableEntityError
from keyed import KEY, UNKNOWN, WRONG
from page import run
from question import DOCUMENTS, QUERY, check
from running import Service

ONCE = {"max_retries": 0}


@pytest.mark.parametrize("heading", ["cohere, v2", "cohere, v1"])
def test_the_snippet(service: Service, heading: str) -> None:
    check(run(heading, service.url), top_n=2)


def test_the_snippet_with_blocks(service: Service) -> None:
    ((start, end),) = run("cohere, with the blocks", service.url)
    assert 0 < start < end


def test_v2(base: str) -> None:
    client = cohere.ClientV2(api_key="any", base_url=base)
    answer = client.rerank(model="rerank-v3.5", query=QUERY, documents=DOCUMENTS, top_n=2, max_tokens_per_doc=4096)
    check([(result.index, result.relevance_score) for result in answer.results], top_n=2)
    assert answer.meta.api_version.version == "2"
    assert answer.meta.billed_units.search_units == 1
    assert answer.meta.tokens.input_tokens > 0
    assert "max_tokens_per_doc" in answer.meta.warnings[0]


def test_v1_with_documents(base: str) -> None:
    client = cohere.Client(api_key="any", base_url=base)
    documents = [{"text": text} for text in DOCUMENTS]
    answer = client.rerank(query=QUERY, documents=documents, return_documents=True, max_chunks_per_doc=10, rank_fields=["text"])
    check([(result.index, result.relevance_score) for result in answer.results])
    assert [result.document.text for result in answer.results] == [DOCUMENTS[result.index] for result in answer.results]
    assert answer.meta.api_version.version == "1"


def test_asynchronously(service: Service) -> None:
    async def ask() -> cohere.V2RerankResponse:
        async with cohere.AsyncClientV2(api_key="any", base_url=service.url) as client:
            return await client.rerank(model="any", query=QUERY, documents=DOCUMENTS)

    check([(result.index, result.relevance_score) for result in asyncio.run(ask()).results])


@pytest.mark.parametrize("kind", [cohere.Client, cohere.ClientV2])
def test_an_error_says_what_is_wrong(service: Service, kind: type) -> None:
    with pytest.raises(UnprocessableEntityError) as caught:
        kind(api_key="any", base_url=service.url).rerank(model="any", query=" ", documents=DOCUMENTS)
    assert caught.value.body["message"] == "query: is empty: say what to rank the documents for"


@pytest.mark.parametrize("kind", [cohere.Client, cohere.ClientV2])
def test_it_comes_back_when_there_is_room(service: Service, kind: type) -> None:
    with service.full_once():
        answer = kind(api_key="any", base_url=service.url).rerank(
            model="any", query=QUERY, documents=DOCUMENTS, request_options={"max_retries": 2}
        )
    check([(result.index, result.relevance_score) for result in answer.results])


@pytest.mark.parametrize("kind", [cohere.Client, cohere.ClientV2])
def test_its_key_is_sent(guarded: Service, kind: type) -> None:
    answer = kind(api_key=KEY, base_url=guarded.url).rerank(model="any", query=QUERY, documents=DOCUMENTS)
    check([(result.index, result.relevance_score) for result in answer.results])
    with pytest.raises(UnauthorizedError) as caught:
        kind(api_key=WRONG, base_url=guarded.url).rerank(model="any", query=QUERY, documents=DOCUMENTS)
    assert caught.value.body["message"].startswith(UNKNOWN)


def test_a_service_that_warms_up_is_waited_for(tmp_path: Path) -> None:
    """It answers 503 until then, and says when to come back."""
    service = Service(tmp_path / "log", until="/health/live")
    client = cohere.ClientV2(api_key="any", base_url=service.url)
    answer = client.rerank(model="any", query=QUERY, documents=DOCUMENTS, request_options={"max_retries": 60})
    service.stop()
    check([(result.index, result.relevance_score) for result in answer.results])


def test_without_retries_it_says_that_the_service_is_busy(service: Service) -> None:
    client = cohere.ClientV2(api_key="any", base_url=service.url)
    with service.full(), pytest.raises(TooManyRequestsError) as caught:
        client.rerank(model="any", query=QUERY, documents=DOCUMENTS, request_options=ONCE)
    assert caught.value.body["message"].startswith("busy: 1 requests are in flight")
    assert caught.value.headers["retry-after"] == "1"
