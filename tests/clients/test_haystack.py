"""Haystack: its rankers for Cohere, Jina, vLLM and text-embeddings-inference."""

import asyncio
from typing import Any

import pytest
from cohere.errors import UnauthorizedError, UnprocessableEntityError
from haystack import Document
from haystack.utils import Secret
from haystack_integrations.components.rankers.cohere import CohereRanker
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
from haystack_integrations.components.rankers.jina import JinaRanker
from haystack_integrations.components.rankers.vllm import VLLMRanker
from keyed import KEY, UNKNOWN, WRONG
from page import run
from question import DOCUMENTS, QUERY, check
from running import Service

FOUND = [Document(content=text, meta={"number": number}) for number, text in enumerate(DOCUMENTS)]


def make(kind: type, base: str, key: str = "any", **more: Any) -> Any:
    """A ranker of this kind that asks the service at this base."""
    secret = Secret.from_token(key)
    if kind is CohereRanker:
        return CohereRanker(api_key=secret, api_base_url=base, **more)
    if kind is JinaRanker:
        return JinaRanker(api_key=secret, base_url=f"{base}/rerank", **more)
    if kind is VLLMRanker:
        return VLLMRanker(model="any", api_key=secret, api_base_url=base, **more)
    return HuggingFaceTEIRanker(url=base, token=secret, **more)


def pairs(answer: dict[str, Any]) -> list[tuple[int, float]]:
    return [(document.meta["number"], document.score) for document in answer["documents"]]


KINDS = [CohereRanker, JinaRanker, VLLMRanker, HuggingFaceTEIRanker]


@pytest.mark.parametrize(
    "heading", ["Haystack, CohereRanker", "Haystack, JinaRanker", "Haystack, VLLMRanker", "Haystack, HuggingFaceTEIRanker"]
)
def test_the_snippet(service: Service, heading: str) -> None:
    check(run(heading, service.url), top_n=2)


@pytest.mark.parametrize("kind", KINDS)
def test_long_documents(base: str, kind: type) -> None:
    check(pairs(make(kind, base, top_k=2).run(query=QUERY, documents=FOUND)), top_n=2)
    check(pairs(asyncio.run(make(kind, base).run_async(query=QUERY, documents=FOUND))))


@pytest.mark.parametrize("kind", [JinaRanker, VLLMRanker])
def test_the_model_and_the_costs_are_named(service: Service, kind: type) -> None:
    meta = make(kind, service.url).run(query=QUERY, documents=FOUND)["meta"]
    assert meta["model"] == "keyb-hybrid-minilm-l6"
    assert meta["usage"]["total_tokens"] > 0


def test_a_threshold(service: Service) -> None:
    ((_, best), (_, second), _) = pairs(make(JinaRanker, service.url).run(query=QUERY, documents=FOUND))
    check(pairs(make(JinaRanker, service.url, score_threshold=(best + second) / 2).run(query=QUERY, documents=FOUND)), top_n=1)


def test_raw_scores(service: Service) -> None:
    scores = [
        score for _, score in pairs(make(HuggingFaceTEIRanker, service.url, raw_scores=True).run(query=QUERY, documents=FOUND))
    ]
    assert min(scores) < 0
    assert scores == sorted(scores, reverse=True)


ERRORS = {
    CohereRanker: UnprocessableEntityError,
    JinaRanker: RuntimeError,
    VLLMRanker: RuntimeError,
    HuggingFaceTEIRanker: RuntimeError,
}


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_says_what_is_wrong(service: Service, kind: type) -> None:
    with pytest.raises(ERRORS[kind], match="is empty: say what to rank the documents for"):
        make(kind, service.url).run(query=" ", documents=FOUND)


@pytest.mark.parametrize("kind", KINDS)
def test_its_key_is_sent(guarded: Service, kind: type) -> None:
    check(pairs(make(kind, guarded.url, KEY).run(query=QUERY, documents=FOUND)))
    error = UnauthorizedError if kind is CohereRanker else RuntimeError
    with pytest.raises(error, match=UNKNOWN):
        make(kind, guarded.url, WRONG).run(query=QUERY, documents=FOUND)


@pytest.mark.parametrize("kind", [CohereRanker, HuggingFaceTEIRanker])
def test_it_comes_back_when_there_is_room(service: Service, kind: type) -> None:
    ranker = make(kind, service.url)
    with service.full_once():
        answer = ranker.run(query=QUERY, documents=FOUND)
    check(pairs(answer))


@pytest.mark.parametrize("kind", [JinaRanker, VLLMRanker])
def test_those_that_never_come_back_say_that_the_service_is_busy(service: Service, kind: type) -> None:
    with service.full(), pytest.raises(RuntimeError, match="busy: 1 requests are in flight"):
        make(kind, service.url).run(query=QUERY, documents=FOUND)
