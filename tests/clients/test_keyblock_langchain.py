"""KeyBlock's own compressor for LangChain."""

import asyncio
from typing import Any

import pytest
from asked import HANDBOOK, QUESTION, RIGHT, TEXTS, check_pruned, check_span
from contract import KEY, UNKNOWN
from langchain_core.documents import Document
from page import run
from question import DOCUMENTS, QUERY, check
from running import Service

from keyblock.client import AccessError, InvalidRequestError
from keyblock.integrations.langchain import KeyBlockRerank

FOUND = [Document(text, metadata={"number": number}, id=str(number)) for number, text in enumerate(DOCUMENTS)]
ASKED = [Document(text, metadata={"number": number}, id=str(number)) for number, text in enumerate(TEXTS)]
PRUNED = {"prune": True, "relevant_spans": True}


def both(documents: list[Document], query: str, **settings: Any) -> list[Document]:
    """What it gives, awaited or not."""
    reranker = KeyBlockRerank(**settings)
    given = reranker.compress_documents(documents, query)
    assert asyncio.run(reranker.acompress_documents(documents, query)) == given
    return given


def pairs(documents: list[Document]) -> list[tuple[int, float]]:
    return [(document.metadata["number"], document.metadata["relevance_score"]) for document in documents]


def test_the_snippet(service: Service) -> None:
    check(run("LangChain, KeyBlockRerank", service.url), top_n=2)


def test_long_documents_stay_as_they_are(base: str) -> None:
    ranked = both(FOUND, QUERY, url=base, top_n=2)
    check(pairs(ranked), top_n=2)
    assert [document.page_content for document in ranked] == [DOCUMENTS[document.metadata["number"]] for document in ranked]
    assert all(document.metadata.keys() == {"number"} for document in FOUND)


def test_pruned_to_the_sentence_that_answers(service: Service) -> None:
    (document,) = both(ASKED, QUESTION, url=service.url, keep_original=True, **PRUNED)
    assert (document.metadata["number"], document.id) == (RIGHT, str(RIGHT))
    check_pruned(document.page_content)
    best = document.metadata["relevant_spans"][0]
    check_span(best["start"], best["end"])
    assert HANDBOOK[best["start"] : best["end"]] == best["text"]
    assert document.metadata["original_text"] == HANDBOOK


def test_the_original_is_kept_only_if_asked_for(service: Service) -> None:
    (document,) = both(ASKED, QUESTION, url=service.url, prune=True, max_context_tokens=40)
    check_pruned(document.page_content)
    assert 0 < document.metadata["context_tokens"] <= 40
    assert document.metadata.keys() == {"number", "relevance_score", "context_tokens", "context_parts"}


def test_documents_below_the_threshold_are_left_out(service: Service) -> None:
    assert [number for number, _ in pairs(both(ASKED, QUESTION, url=service.url, min_score=0.1))] == [RIGHT]
    assert both(ASKED[:RIGHT], QUESTION, url=service.url, min_score=0.1) == []


def test_nothing_is_asked_about_nothing() -> None:
    assert both([], QUESTION, url="http://127.0.0.1:9") == []


def test_an_error_says_what_is_wrong(service: Service) -> None:
    with pytest.raises(InvalidRequestError, match="query: is empty"):
        KeyBlockRerank(url=service.url).compress_documents(FOUND, " ")


def test_its_key_is_sent_and_not_shown(guarded: Service) -> None:
    check(pairs(both(FOUND, QUERY, url=guarded.url, api_key=KEY)))
    with pytest.raises(AccessError, match=UNKNOWN):
        KeyBlockRerank(url=guarded.url, api_key="kb_wrong").compress_documents(FOUND, QUERY)
    kept = KeyBlockRerank(api_key=KEY)
    assert not any(KEY in shown for shown in (repr(kept), kept.model_dump_json()))


def test_it_comes_back_when_there_is_room(service: Service) -> None:
    with service.full_once():
        ranked = KeyBlockRerank(url=service.url).compress_documents(FOUND, QUERY)
    check(pairs(list(ranked)))
