"""The dialects beside the native one and TEI's, in the requests of their clients, and the handshakes that come before."""

from typing import Any

import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from keyblock import __version__
from keyblock.wire import NimAnswer, ScoreAnswer, VoyageAnswer

QUERY = "river bridge"
TEXTS = ["a city of a million people", "the river flooded the old stone bridge", "every year the same"]
PASSAGES = [{"text": text} for text in TEXTS]
SHAPES: dict[str, Any] = {"data": VoyageAnswer, "rankings": NimAnswer, "score": ScoreAnswer}


@pytest.fixture(scope="module")
def scores(client: TestClient) -> dict[int, float]:
    """The probability of each text, best first."""
    results = client.post("/rerank", json={"query": QUERY, "documents": TEXTS}).json()["results"]
    return {result["index"]: result["relevance_score"] for result in results}


@pytest.fixture(scope="module")
def logits(client: TestClient) -> dict[int, float]:
    results = client.post("/rerank", json={"query": QUERY, "documents": TEXTS, "raw_scores": True}).json()["results"]
    return {result["index"]: result["relevance_score"] for result in results}


def ask(client: TestClient, path: str, body: dict[str, Any], shape: Any) -> Any:
    response = client.post(path, json=body)
    assert response.status_code == 200, response.text
    answer = TypeAdapter(shape).validate_json(response.content)
    assert answer["usage"]["total_tokens"] > 0
    return answer


def test_voyage(client: TestClient, scores: dict[int, float]) -> None:
    """The requests of voyageai 0.5.0, which always sends `truncation`, and of litellm's provider."""
    body: dict[str, Any] = {"query": QUERY, "documents": TEXTS, "model": "rerank-2.5", "top_k": None, "truncation": True}
    answer = ask(client, "/v1/rerank", body, VoyageAnswer)
    assert (answer["object"], answer["meta"]["warnings"]) == ("list", [])
    assert {result["index"]: result["relevance_score"] for result in answer["data"]} == scores
    (best,) = ask(client, "/rerank", body | {"top_k": 1, "return_documents": True}, VoyageAnswer)["data"]
    assert best == {"index": 1, "relevance_score": scores[1], "document": TEXTS[1]}
    assert client.post("/rerank", json=body | {"top_k": -1}).json()["message"].startswith("top_k: ")
    refused = client.post("/v1/rerank", json=body | {"query": " "})
    assert (refused.status_code, refused.json()["detail"][:15]) == (422, "query: is empty")


@pytest.mark.parametrize("path", ["/score", "/v1/score"])
@pytest.mark.parametrize("names", [("text_1", "text_2"), ("queries", "documents")])
@pytest.mark.parametrize("query", [QUERY, [QUERY], [QUERY] * 3])
def test_vllms_scores(client: TestClient, scores: dict[int, float], path: str, names: tuple[str, str], query: Any) -> None:
    answer = ask(client, path, dict(zip(names, (query, TEXTS), strict=True)) | {"model": "m"}, ScoreAnswer)
    assert answer["object"] == "list"
    assert answer["data"] == [{"index": n, "object": "score", "score": scores[n]} for n in range(3)]


def test_a_single_pair_and_logits(client: TestClient, logits: dict[int, float]) -> None:
    body = {"text_1": QUERY, "text_2": TEXTS[1], "use_activation": False}
    assert ask(client, "/score", body, ScoreAnswer)["data"] == [{"index": 0, "object": "score", "score": pytest.approx(logits[1])}]


@pytest.mark.parametrize("path", ["/v1/ranking", "/v1/retrieval/nvidia/llama-3_2-nv-rerankqa-1b-v2/reranking"])
def test_nims_rankings(client: TestClient, logits: dict[int, float], path: str) -> None:
    """RAGFlow sends `top_n` too."""
    body = {"model": "m", "query": {"text": QUERY}, "passages": PASSAGES, "truncate": "END", "top_n": 3}
    answer = ask(client, path, body, NimAnswer)
    assert [ranking["index"] for ranking in answer["rankings"]] == list(logits)
    assert {ranking["index"]: ranking["logit"] for ranking in answer["rankings"]} == pytest.approx(logits)


EVERY: list[tuple[str, dict[str, Any], str, str]] = [
    ("/rerank", {"query": QUERY}, "documents", "results"),
    ("/rerank", {"query": QUERY, "top_k": 9}, "documents", "data"),
    ("/rerank", {"query": QUERY}, "texts", ""),
    ("/score", {"queries": QUERY}, "documents", "data"),
    ("/v1/ranking", {"query": {"text": QUERY}}, "passages", "rankings"),
]


@pytest.mark.parametrize(("path", "body", "name", "results"), EVERY)
def test_no_documents_get_no_results(client: TestClient, path: str, body: dict[str, Any], name: str, results: str) -> None:
    response = client.post(path, json=body | {name: []})
    assert response.status_code == 200, response.text
    answer = response.json()
    assert (answer[results] if results else answer) == []
    if results:
        assert answer["usage"] == {"prompt_tokens": 0, "total_tokens": 0}
        assert (answer["meta"]["warnings"], answer["meta"]["billed_units"]) == ([], {"search_units": 0})


@pytest.mark.parametrize(("path", "body", "name", "results"), EVERY)
def test_null_is_an_empty_document(client: TestClient, path: str, body: dict[str, Any], name: str, results: str) -> None:
    answer = client.post(path, json=body | {name: [None, TEXTS[1], {"text": None, "title": "bridge"}]}).json()
    found = answer[results] if results else answer
    assert [one["index"] for one in found] == ([0, 1, 2] if path == "/score" else [1, 0, 2])
    if results:
        assert answer["meta"]["warnings"] == ["documents without text to score, ranked last: 0, 2"]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/score", {"text_1": QUERY, "text_2": ["x" * 50_000] * 65}),
        ("/v1/ranking", {"query": {"text": QUERY}, "passages": [{"text": "x" * 50_000}] * 65}),
    ],
)
def test_large_bodies_are_read_piece_by_piece_and_bounded(client: TestClient, path: str, body: dict[str, Any]) -> None:
    """Refused at the 65th element, undecoded: after fewer, at once, they are ranked."""
    response = client.post(path, json=body)
    name = "text_2" if "text_2" in body else "passages"
    assert (response.status_code, response.json()["message"]) == (422, f"{name}: has more than 64 elements, the limit")


def test_what_dify_asks_a_tei_first(client: TestClient) -> None:
    """Its TeiHelper wants a type it knows, and then sends what its rerank provider sends."""
    info = client.get("/info").json()
    assert list(info["model_type"]) == ["reranker"]
    assert (info["model_id"], info["version"]) == ("tiny", __version__)
    assert (info["max_client_batch_size"], info["max_concurrent_requests"]) == (64, info["limits"]["max_requests_in_flight"])
    assert info["max_input_length"] == info["limits"]["max_document_chars"] // 4
    results = client.post("/rerank", json={"query": QUERY, "texts": TEXTS, "return_text": True}).json()
    assert results[0]["text"] == TEXTS[results[0]["index"]] == TEXTS[1]


def test_what_ragflow_sends_to_xinference(client: TestClient) -> None:
    """Booleans as strings."""
    body = {"model": "m", "query": QUERY, "return_documents": "true", "return_len": "true", "documents": TEXTS}
    answer = client.post("/v1/rerank", json=body).json()
    assert answer["results"][0]["document"] == {"text": TEXTS[1]}
    assert answer["meta"]["tokens"]["input_tokens"] > answer["meta"]["tokens"]["output_tokens"] == 0


def test_models_as_openai_lists_them(client: TestClient) -> None:
    listed = client.get("/v1/models").json()
    (model,) = listed["data"]
    assert (listed["object"], model["id"], model["object"], model["owned_by"]) == ("list", "tiny", "model", "keyblock")
    assert 1_700_000_000 < model["created"] < 5_000_000_000
