"""LangChain's NVIDIARerank, which speaks to NIM: its scores are logits."""

import asyncio
from typing import Any

import pytest
from keyed import KEY, UNKNOWN, WRONG
from langchain_core.documents import Document
from langchain_nvidia_ai_endpoints import NVIDIARerank
from page import run
from question import DOCUMENTS, QUERY, check, of_logits
from running import Service

FOUND = [Document(text, metadata={"number": number}) for number, text in enumerate(DOCUMENTS)]


def make(base: str, **more: Any) -> NVIDIARerank:
    return NVIDIARerank(base_url=base, **more)


def pairs(documents: Any) -> list[tuple[int, float]]:
    return of_logits((document.metadata["number"], document.metadata["relevance_score"]) for document in documents)


def test_the_snippet(service: Service) -> None:
    check(of_logits(run("LangChain, NVIDIARerank", service.url)), top_n=2)


def test_long_documents(base: str) -> None:
    check(pairs(make(base, model="any", top_n=2).compress_documents(FOUND, QUERY)), top_n=2)
    check(pairs(asyncio.run(make(base, model="any").acompress_documents(FOUND, QUERY))))


def test_the_default_model_is_the_first_that_is_listed(service: Service) -> None:
    with pytest.warns(UserWarning, match="keyb-hybrid-minilm-l6"):
        assert make(service.url).model == "keyb-hybrid-minilm-l6"


def test_an_error_says_what_is_wrong(service: Service) -> None:
    with pytest.raises(Exception, match="is empty: say what to rank"):
        make(service.url, model="any").compress_documents(FOUND, " ")


def test_its_key_is_sent(guarded: Service) -> None:
    check(pairs(make(guarded.url, model="any", api_key=KEY).compress_documents(FOUND, QUERY)))
    with pytest.raises(Exception, match=UNKNOWN):
        make(guarded.url, model="any", api_key=WRONG).compress_documents(FOUND, QUERY)


def test_it_says_that_the_service_is_busy(service: Service) -> None:
    with service.full(), pytest.raises(Exception, match="busy: 1 requests are in flight"):
        make(service.url, model="any").compress_documents(FOUND, QUERY)
