"""litellm: its providers for Cohere, Jina, vLLM, Infinity and text-embeddings-inference."""

import asyncio
from typing import Any

import litellm
import pytest
from keyed import KEY, UNKNOWN, WRONG
from litellm.exceptions import APIError, AuthenticationError, BadRequestError, RateLimitError
from page import run
from question import DOCUMENTS, QUERY, check, of_logits
from running import Service

WITH_TOP_N = {"voyage": 2, "nvidia_nim": 3, "nvidia_nim/ranking": 2}  # results of 3 with top_n=2; NIM's are logits
PROVIDERS = ["cohere", "jina_ai", "hosted_vllm", "infinity", "huggingface"]


def ask(provider: str, base: str, query: str = QUERY, key: str = "any", **options: Any) -> litellm.RerankResponse:
    return litellm.rerank(f"{provider}/any", query, DOCUMENTS, api_base=base, api_key=key, **options)


def pairs(answer: litellm.RerankResponse) -> list[tuple[int, float]]:
    return [(result["index"], result["relevance_score"]) for result in answer.results]


@pytest.mark.parametrize(
    "heading", ["litellm, cohere", "litellm, jina_ai", "litellm, hosted_vllm", "litellm, infinity", "litellm, huggingface"]
)
def test_the_snippet(service: Service, heading: str) -> None:
    check(run(heading, service.url), top_n=2)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_long_documents(base: str, provider: str) -> None:
    check(pairs(ask(provider, base)))


@pytest.mark.parametrize(("provider", "results"), WITH_TOP_N.items())
def test_providers_that_name_the_number_of_results(base: str, provider: str, results: int) -> None:
    found = pairs(ask(provider, base, top_n=2))
    check(of_logits(found) if "nim" in provider else found, top_n=results)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_asynchronously(service: Service, provider: str) -> None:
    answer = asyncio.run(litellm.arerank(f"{provider}/any", QUERY, DOCUMENTS, api_base=service.url, api_key="any"))
    check(pairs(answer))


@pytest.mark.parametrize("provider", PROVIDERS[:-1])
def test_top_n(service: Service, provider: str) -> None:
    check(pairs(ask(provider, service.url, top_n=2)), top_n=2)


def test_top_n_has_no_place_in_teis_shape(service: Service) -> None:
    check(pairs(ask("huggingface", service.url, top_n=2)))


@pytest.mark.parametrize(("provider", "come"), [(name, name in ("cohere", "huggingface")) for name in PROVIDERS])
def test_documents_come_back_where_litellm_can_read_them(service: Service, provider: str, come: bool) -> None:
    results = ask(provider, service.url, return_documents=True).results
    assert ["document" in result for result in results] == [come] * 3
    assert not come or [result["document"]["text"] for result in results] == [DOCUMENTS[result["index"]] for result in results]


@pytest.mark.parametrize("provider", PROVIDERS)
def test_an_error_says_what_is_wrong(service: Service, provider: str) -> None:
    error = APIError if provider == "huggingface" else BadRequestError  # what litellm makes of TEI's 422
    with pytest.raises(error, match="is empty: say what"):
        ask(provider, service.url, " ")


@pytest.mark.parametrize("provider", PROVIDERS)
def test_its_key_is_sent(guarded: Service, provider: str) -> None:
    check(pairs(ask(provider, guarded.url, key=KEY)))
    with pytest.raises(AuthenticationError, match=UNKNOWN):
        ask(provider, guarded.url, key=WRONG)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_it_says_that_the_service_is_busy(service: Service, provider: str) -> None:
    with service.full(), pytest.raises(RateLimitError, match="busy: 1 requests are in flight"):
        ask(provider, service.url)


@pytest.mark.parametrize("provider", PROVIDERS)
def test_its_router_comes_back_when_there_is_room(service: Service, provider: str) -> None:
    """litellm.rerank alone asks once, whatever num_retries says."""
    parameters = {"model": f"{provider}/any", "api_base": service.url, "api_key": "any"}
    router = litellm.Router([{"model_name": "reranker", "litellm_params": parameters}], num_retries=2)
    with service.full_once():
        answer = asyncio.run(router.arerank("reranker", query=QUERY, documents=DOCUMENTS))
    check(pairs(answer))
