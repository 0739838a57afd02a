"""litellm: its providers for Cohere, Jina, vLLM, Infinity and text-embeddings-inference."""

import asyncio
from typing import Any

import litellm
import pytest
from contract import Contract, Library
from litellm.exceptions import APIError, AuthenticationError, BadRequestError, RateLimitError
from question import DOCUMENTS, QUERY, check, of_logits
from running import Service

WITH_TOP_N = {"voyage": 2, "nvidia_nim": 3, "nvidia_nim/ranking": 2}  # results of 3 with top_n=2; NIM's are logits
PROVIDERS = ["cohere", "jina_ai", "hosted_vllm", "infinity", "huggingface"]


def ask(provider: str, base: str, query: str = QUERY, key: str = "any", **options: Any) -> litellm.RerankResponse:
    return litellm.rerank(f"{provider}/any", query, DOCUMENTS, api_base=base, api_key=key, **options)


def pairs(answer: litellm.RerankResponse) -> list[tuple[int, float]]:
    return [(result["index"], result["relevance_score"]) for result in answer.results]


def library(provider: str) -> Library:
    async def awaited(url: str, query: str, key: str) -> list[tuple[int, float]]:
        return pairs(await litellm.arerank(f"{provider}/any", query, DOCUMENTS, api_base=url, api_key=key))

    def rank(url: str, query: str, key: str) -> list[tuple[int, float]]:
        return pairs(ask(provider, url, query, key))

    refused = APIError if provider == "huggingface" else BadRequestError  # what litellm makes of TEI's 422
    return Library(rank, f"litellm, {provider}", refused, AuthenticationError, RateLimitError, awaited)


LIBRARIES = {provider: library(provider) for provider in PROVIDERS}


class TestLitellm(Contract):
    pass


@pytest.mark.parametrize(("provider", "results"), WITH_TOP_N.items())
def test_providers_that_name_the_number_of_results(base: str, provider: str, results: int) -> None:
    found = pairs(ask(provider, base, top_n=2))
    check(of_logits(found) if "nim" in provider else found, top_n=results)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_top_n_where_the_shape_has_a_place_for_it(service: Service, provider: str) -> None:
    check(pairs(ask(provider, service.url, top_n=2)), top_n=3 if provider == "huggingface" else 2)


@pytest.mark.parametrize(("provider", "come"), [(name, name in ("cohere", "huggingface")) for name in PROVIDERS])
def test_documents_come_back_where_litellm_can_read_them(service: Service, provider: str, come: bool) -> None:
    results = ask(provider, service.url, return_documents=True).results
    assert ["document" in result for result in results] == [come] * 3
    assert not come or [result["document"]["text"] for result in results] == [DOCUMENTS[result["index"]] for result in results]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_its_router_comes_back_when_there_is_room(service: Service, provider: str) -> None:
    """litellm.rerank alone asks once, whatever num_retries says."""
    parameters = {"model": f"{provider}/any", "api_base": service.url, "api_key": "any"}
    router = litellm.Router([{"model_name": "reranker", "litellm_params": parameters}], num_retries=2)
    with service.full_once():
        answer = asyncio.run(router.arerank("reranker", query=QUERY, documents=DOCUMENTS))
    check(pairs(answer))
