"""Several queries in one request: each is answered as a request of its own would be."""

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from keyblock.wire import QueriesAnswer
from service.queue.job import ModelError
from service.ranking.ranker import Ranker
from service.settings import Settings
from tests.service.conftest import rerank, warm

ANSWER = TypeAdapter(QueriesAnswer)
RIVER, CITY, STONE = (
    "The river flooded the old bridge.",
    "The city has a new bridge over the river.",
    "A stone lay there for years.",
)
SHARED = [RIVER, {"id": "city", "title": "City", "text": CITY}, STONE]
QUERIES = ["river bridge", "city", "years of stone"]


def post(client: TestClient, **body: Any) -> Any:
    return client.post("/rerank", json=body)


def ask(client: TestClient, queries: list[Any], **body: Any) -> list[Any]:
    return list(ANSWER.validate_python(rerank(client, queries=queries, **body))["answers"])


def alone(client: TestClient, query: str, documents: list[Any], **body: Any) -> list[Any]:
    """The results of a request of its own."""
    return list(rerank(client, query=query, documents=documents, **body)["results"])


def near(results: list[Any], others: list[Any]) -> bool:
    """Whether they are the same up to the arithmetic of another batch."""
    scores = [[one["relevance_score"] for one in each] for each in (results, others)]
    rest = [[one | {"relevance_score": 0, "blocks": []} for one in each] for each in (results, others)]
    return rest[0] == rest[1] and scores[0] == pytest.approx(scores[1], abs=1e-5)


def sample(client: TestClient, name: str) -> float:
    lines = client.get("/metrics").text.splitlines()
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


@pytest.mark.parametrize(
    "options",
    [{}, {"top_n": 2, "return_documents": True}, {"relevant_spans": {"mode": "enabled"}, "prune": True}, {"deadline_ms": 60_000}],
)
def test_each_query_has_the_answer_of_a_request_of_its_own(client: TestClient, options: dict[str, Any]) -> None:
    answers = ask(client, [{"query": query} for query in QUERIES], documents=SHARED, **options)
    for query, answer in zip(QUERIES, answers, strict=True):
        assert near(answer["results"], alone(client, query, SHARED, **options))
        assert (answer["object"], answer["model"]) == ("rerank", "tiny")


def test_fields_of_another_dialect_change_nothing(client: TestClient) -> None:
    queries = [{"query": query} for query in QUERIES]
    answers = ask(client, queries, documents=SHARED, top_k=1)
    assert "unknown fields, not used: top_k" in answers[0]["meta"]["warnings"]
    assert near(answers[0]["results"], alone(client, QUERIES[0], SHARED))
    (missing, *_) = ask(client, queries, texts=[RIVER])
    assert missing["message"].startswith("queries[0].documents: are missing")


def test_a_query_has_its_own_documents_or_some_of_those_that_all_share(client: TestClient) -> None:
    own, some, every = ask(
        client,
        [
            {"query": "river", "documents": ["a bridge", RIVER]},
            {"query": "river", "candidates": [2, 0, 3], "first_stage_scores": [1, 3, 0]},
            {"query": "river"},
        ],
        documents=[*SHARED, ""],
    )
    assert near(own["results"], alone(client, "river", ["a bridge", RIVER]))
    assert near(every["results"], alone(client, "river", [*SHARED, ""]))
    scores = {one["index"]: one["relevance_score"] for one in every["results"]}
    assert {one["index"]: one["relevance_score"] for one in some["results"]} == pytest.approx(
        {0: scores[0], 2: scores[2], 3: 0}, abs=1e-5
    )
    assert "documents without text to score, ranked last: 3" in some["meta"]["warnings"], "its number among the shared ones"
    assert some["meta"]["warnings"][0].startswith("first_stage_scores: "), "they were read: this bundle names no fusion"


def test_first_stage_scores_are_of_the_querys_own_candidates(client: TestClient) -> None:
    query = {"query": "river", "candidates": [2, 0], "first_stage_scores": [9, 1]}
    fusion = {"name": "linear", "weight": 1.0}
    (answer,) = ask(client, [query], documents=SHARED, fusion=fusion)
    assert [one["index"] for one in answer["results"]] == [2, 0], "by the first stage alone"
    (answer,) = ask(client, [query | {"first_stage_scores": [1, 9]}], documents=SHARED, fusion=fusion)
    assert [one["index"] for one in answer["results"]] == [0, 2]


WRONG: list[tuple[Any, str]] = [
    (7, "queries[1]: must be an object with 'query', not 7"),
    ({}, "queries[1].query: is missing: say what to rank the documents for"),
    ({"query": " "}, "queries[1].query: is empty: say what to rank the documents for"),
    ({"query": "q", "documents": ["a", 7]}, "queries[1].documents[1]: must be a string or an object with 'text', not 7"),
    ({"query": "q", "candidates": [0] * 65}, "queries[1].candidates: has 65 elements, limit 64"),
    ({"query": "q", "candidates": [0, 3]}, "queries[1].candidates[1]: is 3, and the queries share 3 documents"),
    ({"query": "q", "candidates": [1e308]}, "queries[1].candidates[0]: is a number, and the queries share 3 documents"),
    ({"query": "q", "candidates": [-1]}, "queries[1].candidates[0]: input should be greater than or equal to 0, and it is -1"),
    ({"query": "q", "candidates": [0], "documents": ["a"]}, "queries[1].documents: stand beside candidates: send one of them"),
    ({"query": "q", "first_stage_scores": [1.0]}, "queries[1].first_stage_scores: has 1 scores for 3 documents: send one for each"),
    ({"query": "q", "document_ids": ["x"]}, "queries[1].documents[0].text: is missing or null, and documents by id are off"),
]


@pytest.mark.parametrize(("wrong", "problem"), WRONG)
def test_a_query_that_is_wrong_has_an_error_beside_the_others_answers(client: TestClient, wrong: Any, problem: str) -> None:
    before = sample(client, 'keyblock_queries_total{outcome="invalid"}')
    first, error, last = ask(client, [{"query": "river"}, wrong, {"query": "river"}], documents=SHARED)
    assert near(first["results"], last["results"])
    assert len(first["results"]) == 3
    assert error["message"].startswith(problem)
    assert error["error"]["code"] == 422
    assert sample(client, 'keyblock_queries_total{outcome="invalid"}') == before + 1


def test_a_query_without_documents_where_none_are_shared(client: TestClient) -> None:
    error, answer = ask(client, [{"query": "river"}, {"query": "river", "documents": [RIVER]}])
    assert error["message"] == "queries[0].documents: are missing: send a list of texts, or one that all queries share"
    assert len(answer["results"]) == 1


def test_a_failure_of_the_model_is_that_of_its_query(client: TestClient, ranker: Ranker, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = ranker.models.default.scorer
    usual = scorer.score

    async def score(call: Any, *rest: Any) -> Any:
        if call.query == "fail":
            raise ModelError("the model failed on this request")
        return await usual(call, *rest)

    monkeypatch.setattr(scorer, "score", score)
    answer, error = ask(client, [{"query": "river"}, {"query": "fail"}], documents=SHARED)
    assert len(answer["results"]) == 3
    assert (error["error"]["code"], error["message"]) == (500, "queries[1]: the model failed on this request")


def test_no_queries_have_no_answers(client: TestClient) -> None:
    assert ask(client, [], documents=SHARED) == []
    assert [one["error"]["code"] for one in ask(client, [1, None])] == [422, 422]
    assert 'model=""' not in client.get("/metrics").text


def test_other_paths_know_no_queries(client: TestClient) -> None:
    assert client.post("/score", json={"queries": [{"query": "q"}], "documents": ["a"]}).status_code == 422


def test_each_document_is_prepared_once(client: TestClient) -> None:
    """Three texts, of which five queries name eleven, one of them once more as its own."""
    texts = [f"{text} Told once, at {time.time_ns()}." for text in (RIVER, CITY, STONE)]
    before = sample(client, "keyblock_cache_lookups_total"), sample(client, 'keyblock_cache_lookups_total{outcome="miss"}')
    queries: list[Any] = [{"query": query} for query in QUERIES]
    ask(client, [*queries, {"query": "river", "candidates": [1]}, {"query": "river", "documents": [texts[0]]}], documents=texts)
    assert sample(client, "keyblock_cache_lookups_total") == before[0] + 3
    assert sample(client, 'keyblock_cache_lookups_total{outcome="miss"}') == before[1] + 3


def test_the_metrics_count_each_query(client: TestClient) -> None:
    names = (
        "keyblock_documents_total",
        'keyblock_queries_total{outcome="ok"}',
        'keyblock_requests_total{dialect="native",outcome="ok"}',
    )
    before = [sample(client, name) for name in names]
    response = post(client, queries=[{"query": query} for query in QUERIES], documents=SHARED)
    assert [sample(client, name) - was for name, was in zip(names, before, strict=True)] == [9, 3, 1]
    answers = response.json()["answers"]
    assert int(response.headers["x-compute-tokens"]) == sum(one["usage"]["total_tokens"] for one in answers) > 0
    assert "queries;dur=" in response.headers["server-timing"]


def test_a_large_body_is_read_piece_by_piece(client: TestClient) -> None:
    """A query's own documents may be longer than any option."""
    long = f"{RIVER} " * 40_000
    answers = ask(client, [{"query": "river", "documents": [long, RIVER]}, {"query": "city"}], documents=[CITY, long])
    assert [len(one["results"]) for one in answers] == [2, 2]


def test_nothing_is_left_in_flight(client: TestClient, ranker: Ranker) -> None:
    ask(client, [{"query": "river"}, 7], documents=SHARED)
    assert (ranker.admission.load.requests, ranker.admission.load.documents, ranker.admission.load.bytes) == (0, 0, 0)
    assert ranker.admission.wait_seconds() == 0


def test_all_documents_together_are_limited(settings: Settings) -> None:
    with warm(settings.model_copy(update={"max_documents_in_flight": 5})) as client:
        response = post(client, queries=[{"query": "river"}] * 2, documents=SHARED)
        assert response.status_code == 422
        assert response.json()["message"] == "queries: have 6 documents together, limit 5: send fewer in a request"
        assert len(ask(client, [{"query": "river"}], documents=SHARED)) == 1


def test_texts_that_all_answers_repeat_are_limited(settings: Settings) -> None:
    """The body has 200,000 characters, its answers would have 64 times as many; of one result each they have 6,400,000."""
    with warm(settings.model_copy(update={"max_bytes_in_flight": 10_000_000})) as client:
        body = {
            "queries": [{"query": "river"}] * 64,
            "documents": [f"{RIVER} {CITY} ".ljust(100_000)] * 2,
            "return_documents": True,
        }
        response = post(client, **body)
        assert response.status_code == 422
        assert "ask for fewer" in response.json()["message"]
        assert post(client, **body, top_n=1).status_code == 200
        assert post(client, **body | {"return_documents": False}).status_code == 200


def test_a_deadline_holds_for_all_queries_together(client: TestClient) -> None:
    texts = [f"{RIVER} {number} {CITY} " * 200 for number in range(60)]
    began = time.perf_counter()
    answers = ask(client, [{"query": f"river {number}"} for number in range(30)], documents=texts, deadline_ms=100)
    assert time.perf_counter() - began < 5
    assert all(len(one["results"]) == 60 for one in answers)
    assert any(one["meta"]["degraded"] for one in answers), "1,800 documents are too many"


def test_another_callers_request_is_answered_beside_many_queries(client: TestClient) -> None:
    texts = [f"{RIVER} {number} {CITY} " * 20 for number in range(60)]
    body = json.dumps({"queries": [{"query": f"river {number}"} for number in range(30)], "documents": texts})
    ended: list[float] = []
    many = threading.Thread(target=lambda: ended.append((client.post("/rerank", content=body), time.perf_counter())[1]))
    many.start()
    while sample(client, "keyblock_queue_requests") == 0:
        assert many.is_alive()
    answered = []
    for _ in range(3):
        assert sample(client, "keyblock_queue_requests") <= 2, "they are scored two at a time"
        assert len(alone(client, "city", [CITY, RIVER])) == 2
        answered.append(time.perf_counter())
    many.join()
    assert answered[-1] < ended[0]


@pytest.fixture(scope="module")
def storing(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """With documents in a store, and without a cache."""
    store: Path = tmp_path_factory.mktemp("queries")
    with warm(settings.model_copy(update={"store": str(store), "cache_bytes": 0})) as client:
        lines = "\n".join(json.dumps({"id": name, "text": text}) for name, text in (("river", RIVER), ("city", CITY)))
        assert client.put("/documents", content=lines).json()["stored"] == 2
        yield client


def test_stored_documents_are_looked_up_once(storing: TestClient) -> None:
    before = sample(storing, "keyblock_store_lookups_total")
    answers = ask(
        storing,
        [{"query": "river"}, {"query": "city", "candidates": [1]}, {"query": "river", "document_ids": ["city", "gone"]}],
        document_ids=["river", "city"],
        return_documents=True,
    )
    assert sample(storing, "keyblock_store_lookups_total") == before + 3
    assert near(answers[0]["results"], alone(storing, "river", [{"id": "river"}, {"id": "city"}], return_documents=True))
    assert [(one["index"], one["id"], one["document"]["text"]) for one in answers[1]["results"]] == [(1, "city", CITY)]
    assert [one["id"] for one in answers[2]["results"]] == ["city", "gone"]
    assert answers[2]["meta"]["warnings"] == ["unknown ids, ranked last: 'gone'", *answers[2]["meta"]["warnings"][1:]]


def test_an_unknown_id_is_the_error_of_its_query_alone(storing: TestClient) -> None:
    answer, error = ask(
        storing, [{"query": "river"}, {"query": "river", "document_ids": ["gone"]}], document_ids=["river"], strict=True
    )
    assert len(answer["results"]) == 1
    assert error["message"].startswith("queries[1].documents[0].id: the store has no document of these ids: 'gone'")
