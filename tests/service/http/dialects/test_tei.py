from typing import Any

import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from keyblock.wire import TeiResult
from service.app import RERANK_PATHS

TEXTS = ["the river flooded the old stone bridge", "", "a city of a million people", "the river flooded the old stone bridge"]
ANSWER = TypeAdapter(list[TeiResult])


def ask(client: TestClient, path: str = "/rerank", **fields: object) -> list[TeiResult]:
    response = client.post(path, json={"query": "river bridge", "texts": TEXTS, **fields})
    assert response.status_code == 200, response.text
    return ANSWER.validate_json(response.content)


@pytest.mark.parametrize("path", RERANK_PATHS)
def test_bare_list_of_all_texts_best_first(client: TestClient, path: str) -> None:
    results = ask(client, path, top_n=1, truncate=False, truncation_direction="Right", model="x")
    assert [set(result) for result in results] == [{"index", "score"}] * 4
    assert sorted(result["index"] for result in results) == [0, 1, 2, 3]
    scores = [result["score"] for result in results]
    assert scores == sorted(scores, reverse=True)
    assert results[-1] == {"index": 1, "score": 0.0}


def test_scores_equal_the_native_ones(client: TestClient) -> None:
    native = client.post("/rerank", json={"query": "river bridge", "documents": TEXTS}).json()["results"]
    assert [(r["index"], r["score"]) for r in ask(client)] == [(r["index"], r["relevance_score"]) for r in native]
    raw = client.post("/rerank", json={"query": "river bridge", "documents": TEXTS, "raw_scores": True}).json()["results"]
    assert [r["score"] for r in ask(client, raw_scores=True)] == [r["relevance_score"] for r in raw]


def test_texts_sent_back(client: TestClient) -> None:
    assert all(result["text"] == TEXTS[result["index"]] for result in ask(client, return_text=True))


@pytest.mark.parametrize(
    ("candidates", "native"),
    [
        ({"texts": []}, False),
        ({"texts": ["a"], "documents": None}, False),
        ({"texts": ["a"], "documents": []}, False),
        ({"texts": None, "documents": ["a"]}, True),
        ({"texts": ["a"], "documents": ["b"]}, True),
    ],
)
def test_texts_instead_of_documents_is_teis(client: TestClient, candidates: dict[str, Any], native: bool) -> None:
    answer = client.post("/rerank", json={"query": "q", **candidates}).json()
    assert (isinstance(answer, list), "results" in answer) == (not native, native)
