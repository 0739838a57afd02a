"""A bundle that scores by vectors alone, through HTTP: no graph is run to score, and documents by id rank as their texts do."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.settings import Settings
from tests.service.faults import wait_for

FILLER = "The committee met again and spoke about the budget of the coming season. "
ANSWER = "In case of sickness, inform the manager. "
QUERY = "Whom do I tell when I am ill?"
TEXTS = {
    "none": FILLER * 9,
    "answer": FILLER * 20 + ANSWER + FILLER * 20,
    "near": "The bridge is closed. The disease was rare. ",
    "": "",
}


@pytest.fixture
def client(settings: Settings, by_vectors: Path, tmp_path: Path) -> Iterator[TestClient]:
    """A service of this bundle alone, with a store."""
    app = create_app(settings.model_copy(update={"bundle": (by_vectors,), "store": str(tmp_path / "store")}))
    with TestClient(app) as client:
        wait_for(lambda: bool(app.state.ranker.worker.ready))
        yield client


def ask(client: TestClient, documents: list[dict[str, str]], **options: Any) -> dict[str, Any]:
    response = client.post("/rerank", json={"query": QUERY, "documents": documents, "return_blocks": True, **options})
    assert response.status_code == 200, response.text
    found: dict[str, Any] = response.json()
    return found


def test_the_obvious_answer_is_first_and_no_token_is_read(client: TestClient) -> None:
    """Its block has two of the answer's concepts and says so: the highest cosine; what is empty comes last."""
    answer = ask(client, [{"text": text} for text in TEXTS.values()])
    results = answer["results"]
    assert [list(TEXTS)[one["index"]] for one in results] == ["answer", "near", "none", ""]
    block = results[0]["blocks"][0]
    assert TEXTS["answer"][block["start"] : block["end"]].strip() == ANSWER.strip()
    assert [one.get("scored_by") for one in results] == [None, None, None, "order"]
    assert (answer["usage"]["total_tokens"], answer["meta"]["tokens_per_document"]) == (0, 0)


def test_a_deadline_costs_no_scores(client: TestClient) -> None:
    """Documents that are prepared in time are scored: there is no model to wait for, and none to run out of tokens."""
    documents = [{"text": text} for text in TEXTS.values()]
    in_time = ask(client, documents, deadline_ms=10_000)
    assert not in_time["meta"]["degraded"]
    assert in_time["results"] == ask(client, documents)["results"]
    hopeless = ask(client, documents, deadline_ms=1)["results"]
    assert len(hopeless) == len(TEXTS)


def test_documents_by_id_rank_as_their_texts(client: TestClient) -> None:
    for name, text in TEXTS.items():
        if name:
            assert client.put("/documents", json={"id": name, "text": text}).json()["stored"] == 1
    sent = ask(client, [{"id": name, "text": text} for name, text in TEXTS.items() if name])
    stored = ask(client, [{"id": name} for name in TEXTS if name], strict=True)
    assert stored["results"] == sent["results"]
    assert 'keyblock_store_lookups_total{outcome="stale"} 1.0' not in client.get("/metrics").text
