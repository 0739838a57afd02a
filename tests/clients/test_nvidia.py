"""LangChain's NVIDIARerank, which speaks to NIM: its scores are logits."""

from typing import Any

import pytest
from contract import Contract, Library
from langchain_core.documents import Document
from langchain_nvidia_ai_endpoints import NVIDIARerank
from question import DOCUMENTS, QUERY, check, of_logits
from running import Service

FOUND = [Document(text, metadata={"number": number}) for number, text in enumerate(DOCUMENTS)]


def pairs(documents: Any) -> list[tuple[int, float]]:
    return [(document.metadata["number"], document.metadata["relevance_score"]) for document in documents]


def make(url: str, key: str, **more: Any) -> NVIDIARerank:
    return NVIDIARerank(base_url=url, api_key=key, model="any", **more)


async def awaited(url: str, query: str, key: str) -> list[tuple[int, float]]:
    return pairs(await make(url, key).acompress_documents(FOUND, query))


def rank(url: str, query: str, key: str) -> list[tuple[int, float]]:
    return pairs(make(url, key).compress_documents(FOUND, query))


LIBRARIES = {"nvidia": Library(rank, "LangChain, NVIDIARerank", *[Exception] * 3, awaited, logits=True)}


class TestNvidia(Contract):
    pass


def test_top_n(base: str) -> None:
    check(of_logits(pairs(make(base, "any", top_n=2).compress_documents(FOUND, QUERY))), top_n=2)


def test_the_default_model_is_the_first_that_is_listed(service: Service) -> None:
    with pytest.warns(UserWarning, match="keyb-hybrid-minilm-l6"):
        assert NVIDIARerank(base_url=service.url).model == "keyb-hybrid-minilm-l6"
