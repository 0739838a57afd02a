"""KeyBlock's own ranker for Haystack."""

import asyncio
from typing import Any

import pytest
from asked import HANDBOOK, QUESTION, RIGHT, TEXTS, check_pruned, check_span
from contract import KEY, UNKNOWN
from haystack import Document, Pipeline
from haystack.utils import Secret
from page import run
from question import DOCUMENTS, QUERY, check
from running import Service

from keyblock.client import AccessError, InvalidRequestError
from keyblock.integrations.haystack import KeyBlockRanker

FOUND = [Document(content=text, meta={"number": number}) for number, text in enumerate(DOCUMENTS)]
ASKED = [Document(content=text, meta={"number": number}) for number, text in enumerate(TEXTS)]


def both(documents: list[Document], query: str, **settings: Any) -> list[Document]:
    """What it gives, awaited or not."""
    ranker = KeyBlockRanker(**settings)
    given = ranker.run(query=query, documents=documents)
    assert asyncio.run(ranker.run_async(query=query, documents=documents)) == given
    return given["documents"]


def pairs(documents: list[Document]) -> list[tuple[int, float]]:
    assert all(document.score == document.meta["relevance_score"] for document in documents)
    return [(document.meta["number"], document.score or 0.0) for document in documents]


def test_the_snippet(service: Service) -> None:
    check(run("Haystack, KeyBlockRanker", service.url), top_n=2)


def test_long_documents_stay_as_they_are(base: str) -> None:
    ranked = both(FOUND, QUERY, url=base, top_k=2)
    check(pairs(ranked), top_n=2)
    assert [(document.content, document.id) for document in ranked] == [
        (DOCUMENTS[document.meta["number"]], FOUND[document.meta["number"]].id) for document in ranked
    ]
    check(pairs(KeyBlockRanker(url=base).run(query=QUERY, documents=FOUND, top_k=1)["documents"]), top_n=1)


def test_pruned_to_the_sentence_that_answers(service: Service) -> None:
    (document,) = both(ASKED, QUESTION, url=service.url, prune=True, relevant_spans=True, keep_original=True)
    assert (document.meta["number"], document.id) == (RIGHT, ASKED[RIGHT].id)
    check_pruned(document.content)
    best = document.meta["relevant_spans"][0]
    check_span(best["start"], best["end"])
    assert document.meta["original_text"] == HANDBOOK
    assert ASKED[RIGHT] == Document(content=HANDBOOK, meta={"number": RIGHT})


def test_documents_below_the_threshold_are_left_out(service: Service) -> None:
    assert [number for number, _ in pairs(both(ASKED, QUESTION, url=service.url, min_score=0.1))] == [RIGHT]


def test_a_document_without_content_ranks_last(service: Service) -> None:
    (best, last) = both([Document(content=None, meta={"number": 9}), ASKED[RIGHT]], QUESTION, url=service.url)
    assert (best.meta["number"], last.meta["number"], last.content) == (RIGHT, 9, None)
    assert last.meta["scored_by"] == "order"


def test_nothing_is_asked_about_nothing() -> None:
    assert both([], QUESTION, url="http://127.0.0.1:9") == []


def test_in_a_pipeline_that_was_written_down(guarded: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    """After it was used, with its key in the environment."""
    monkeypatch.setenv("KEYBLOCK_TEST_KEY", KEY)
    key = Secret.from_env_var("KEYBLOCK_TEST_KEY")
    pipeline = Pipeline()
    pipeline.add_component("ranker", KeyBlockRanker(url=guarded.url, api_key=key, top_k=2, prune=True, max_context_tokens=60))
    given = pipeline.run({"ranker": {"query": QUESTION, "documents": ASKED}})
    written = pipeline.dumps()
    assert KEY not in written
    again = Pipeline.loads(written, allowed_modules=["keyblock.integrations.haystack"])
    assert again.dumps() == written
    assert again.run({"ranker": {"query": QUESTION, "documents": ASKED}}) == given
    check_pruned(given["ranker"]["documents"][0].content)


def test_what_is_written_down() -> None:
    ranker = KeyBlockRanker(url="http://reranker:8000", min_score="auto", options={"strict": True})
    written = ranker.to_dict()
    assert written == {
        "type": "keyblock.integrations.haystack.KeyBlockRanker",
        "init_parameters": {
            "api_key": None,
            "top_k": None,
            "url": "http://reranker:8000",
            "min_score": "auto",
            "options": {"strict": True},
        },
    }
    assert KeyBlockRanker.from_dict(written).to_dict() == ranker.to_dict()


def test_an_error_says_what_is_wrong(service: Service) -> None:
    with pytest.raises(InvalidRequestError, match="query: is empty"):
        KeyBlockRanker(url=service.url).run(query=" ", documents=FOUND)
    with pytest.raises(ValueError, match="top_m"):
        KeyBlockRanker(top_m=3)


def test_its_key_is_sent(guarded: Service) -> None:
    check(pairs(both(FOUND, QUERY, url=guarded.url, api_key=Secret.from_token(KEY))))
    with pytest.raises(AccessError, match=UNKNOWN):
        KeyBlockRanker(url=guarded.url, api_key=Secret.from_token("kb_wrong")).run(query=QUERY, documents=FOUND)


def test_it_comes_back_when_there_is_room(service: Service) -> None:
    with service.full_once():
        answer = KeyBlockRanker(url=service.url).run(query=QUERY, documents=FOUND)
    check(pairs(answer["documents"]))
