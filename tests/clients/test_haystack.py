"""Haystack: its rankers for Cohere, Jina, vLLM and text-embeddings-inference."""

from collections.abc import Callable
from typing import Any

import pytest
from cohere.errors import UnauthorizedError, UnprocessableEntityError
from contract import Contract, Library
from haystack import Document
from haystack.utils import Secret
from haystack_integrations.components.rankers.cohere import CohereRanker
from haystack_integrations.components.rankers.huggingface_api import HuggingFaceTEIRanker
from haystack_integrations.components.rankers.jina import JinaRanker
from haystack_integrations.components.rankers.vllm import VLLMRanker
from question import DOCUMENTS, QUERY, check
from running import Service

FOUND = [Document(content=text, meta={"number": number}) for number, text in enumerate(DOCUMENTS)]
MAKE: dict[str, Callable[..., Any]] = {
    "CohereRanker": lambda base, key, **more: CohereRanker(api_key=key, api_base_url=base, **more),
    "JinaRanker": lambda base, key, **more: JinaRanker(api_key=key, base_url=f"{base}/rerank", **more),
    "VLLMRanker": lambda base, key, **more: VLLMRanker(model="any", api_key=key, api_base_url=base, **more),
    "HuggingFaceTEIRanker": lambda base, key, **more: HuggingFaceTEIRanker(url=base, token=key, **more),
}


def pairs(answer: dict[str, Any]) -> list[tuple[int, float]]:
    return [(document.meta["number"], document.score) for document in answer["documents"]]


def library(name: str) -> Library:
    def rank(url: str, query: str, key: str) -> list[tuple[int, float]]:
        return pairs(MAKE[name](url, Secret.from_token(key)).run(query=query, documents=FOUND))

    async def awaited(url: str, query: str, key: str) -> list[tuple[int, float]]:
        return pairs(await MAKE[name](url, Secret.from_token(key)).run_async(query=query, documents=FOUND))

    is_cohere = name == "CohereRanker"
    errors = (UnprocessableEntityError, UnauthorizedError) if is_cohere else (RuntimeError, RuntimeError)
    busy = RuntimeError if name in ("JinaRanker", "VLLMRanker") else None
    return Library(rank, f"Haystack, {name}", *errors, busy, awaited)


LIBRARIES = {name: library(name) for name in MAKE}


class TestHaystack(Contract):
    pass


def ranked(url: str, name: str, **more: Any) -> dict[str, Any]:
    return MAKE[name](url, Secret.from_token("any"), **more).run(query=QUERY, documents=FOUND)


@pytest.mark.parametrize("name", MAKE)
def test_top_k(base: str, name: str) -> None:
    check(pairs(ranked(base, name, top_k=2)), top_n=2)


@pytest.mark.parametrize("name", ["JinaRanker", "VLLMRanker"])
def test_the_model_and_the_costs_are_named(service: Service, name: str) -> None:
    meta = ranked(service.url, name)["meta"]
    assert meta["model"] == "keyb-hybrid-minilm-l6"
    assert meta["usage"]["total_tokens"] > 0


def test_a_threshold(service: Service) -> None:
    ((_, best), (_, second), _) = pairs(ranked(service.url, "JinaRanker"))
    check(pairs(ranked(service.url, "JinaRanker", score_threshold=(best + second) / 2)), top_n=1)


def test_raw_scores(service: Service) -> None:
    scores = [score for _, score in pairs(ranked(service.url, "HuggingFaceTEIRanker", raw_scores=True))]
    assert min(scores) < 0
    assert scores == sorted(scores, reverse=True)
