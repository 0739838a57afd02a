"""Request ids on every answer, and the lines of the access log."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.app import create_app
from service.ranking.ranker import Ranker
from service.settings import LogFormat, Settings
from service.telemetry.logs import formatter, with_request_id
from tests.service.faults import wait_for
from tests.service.keyed import bearing, keyed

QUERY, TEXT = "confidential question", "confidential text about a river"
REQUEST: dict[str, Any] = {"query": QUERY, "documents": [TEXT, "another " * 100]}


class Lines(logging.Handler):
    """The log as it would be written."""

    def __init__(self, kind: LogFormat) -> None:
        super().__init__()
        self.setFormatter(formatter(kind))
        self.addFilter(with_request_id)
        self.written: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("httpx"):  # the client of these tests, which logs what it asks
            self.written.append(self.format(record))


@pytest.fixture
def lines(request: pytest.FixtureRequest) -> Iterator[list[str]]:
    handler = Lines(getattr(request, "param", LogFormat.JSON))
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield handler.written
    root.removeHandler(handler)
    root.setLevel(level)


@pytest.fixture
def logging_client(settings: Settings, ranker: Ranker, monkeypatch: pytest.MonkeyPatch) -> TestClient:
    """Of a service with keys and an access log; tests may change its ranker's settings."""
    monkeypatch.setattr(ranker, "settings", keyed(settings, access_log=True))
    return TestClient(create_app(ranker.settings, ranker), raise_server_exceptions=False)


ASKED = {
    "an answer": ("POST", "/rerank", json.dumps(REQUEST).encode(), 200),
    "an error": ("POST", "/rerank", b"{", 400),
    "no such path": ("GET", "/nothing", b"", 404),
    "no such method": ("GET", "/rerank", b"", 405),
    "health": ("GET", "/health/live", b"", 200),
    "the interface": ("GET", "/openapi.json", b"", 200),
}


@pytest.mark.parametrize(("method", "path", "body", "status"), ASKED.values(), ids=ASKED)
def test_every_answer_has_an_id(client: TestClient, method: str, path: str, body: bytes, status: int) -> None:
    response = client.request(method, path, content=body, headers={"x-request-id": "trace-7"})
    assert (response.status_code, response.headers.get_list("x-request-id")) == (status, ["trace-7"])
    made = [client.request(method, path, content=body).headers["x-request-id"] for _ in range(2)]
    assert made[0] != made[1]
    assert all(len(identity) == 32 for identity in made)


def test_the_answers_id_ends_with_it_as_vllms_does(client: TestClient) -> None:
    response = client.post("/rerank", json=REQUEST, headers={"x-request-id": "trace-7"})
    assert response.json()["id"] == "rerank-trace-7"
    response = client.post("/rerank", json=REQUEST)
    assert response.json()["id"] == f"rerank-{response.headers['x-request-id']}"


def test_a_denied_request_and_a_fault_of_ours_have_one_too(
    logging_client: TestClient, monkeypatch: pytest.MonkeyPatch, lines: list[str]
) -> None:
    client = logging_client
    assert client.post("/rerank", json=REQUEST, headers={"x-request-id": "t1"}).headers["x-request-id"] == "t1"

    def on_fire(_: object) -> None:
        raise ValueError("on fire")

    monkeypatch.setattr("service.http.info.describe", on_fire)
    response = client.get("/info", headers=bearing("ops") | {"x-request-id": "t2"})
    assert (response.status_code, response.headers["x-request-id"]) == (500, "t2")
    entries = [json.loads(line) for line in lines if '"service.access"' in line]
    assert [(one["request_id"], one["status"]) for one in entries] == [("t1", 401), ("t2", 500)]


def access(lines: list[str]) -> dict[str, Any]:
    (line,) = (line for line in lines if '"service.access"' in line)
    entry: dict[str, Any] = json.loads(line)
    return entry


def test_a_line_says_what_became_of_a_request_and_nothing_that_it_says(logging_client: TestClient, lines: list[str]) -> None:
    response = logging_client.post("/rerank?q=confidential", json=REQUEST, headers=bearing("alice"))
    entry = access(lines)
    told = {"method": "POST", "path": "/rerank", "status": 200, "dialect": "native", "documents": 2, "key": "alice"}
    assert entry == entry | told
    assert entry["request_id"] == response.headers["x-request-id"]
    assert set(entry["stages_ms"]) == {"parse", "prepare", "queue", "model", "aggregate", "respond"}
    assert entry["duration_ms"] >= max(entry["stages_ms"].values())
    assert "confidential" not in "".join(lines)


WRONG = {
    "a field of a wrong type": {"query": QUERY, "documents": [TEXT, 7]},
    "an unknown field": REQUEST | {"other": TEXT},
    "an unknown id": REQUEST | {"documents": [{"id": TEXT}], "strict": True},
    "TEI's shape": {"query": QUERY, "texts": [TEXT]},
    "no time": REQUEST | {"deadline_ms": 0},
}


@pytest.mark.parametrize("request_", WRONG.values(), ids=WRONG)
@pytest.mark.parametrize("lines", LogFormat, indirect=True)
def test_no_request_is_quoted_in_the_log(logging_client: TestClient, lines: list[str], request_: dict[str, Any]) -> None:
    assert logging_client.post("/rerank", json=request_, headers=bearing("alice")).status_code in (200, 422)
    assert logging_client.post("/rerank", content=json.dumps(request_)[:-2], headers=bearing("alice")).status_code == 400
    assert len([line for line in lines if "service.access" in line]) == 2
    assert "confidential" not in "".join(lines)


def test_texts_are_logged_if_requested(logging_client: TestClient, ranker: Ranker, lines: list[str]) -> None:
    ranker.settings = ranker.settings.model_copy(update={"log_texts": True})
    logging_client.post("/rerank", json=REQUEST | {"documents": [TEXT, "x" * 1000, *["more"] * 20]}, headers=bearing("alice"))
    entry = access(lines)
    assert entry["query"] == QUERY
    assert entry["texts"] == [TEXT, "x" * 200, *["more"] * 8]


def test_without_access_log_there_is_no_line(client: TestClient, lines: list[str]) -> None:
    wait_for(lambda: client.post("/rerank", json=REQUEST).status_code == 200)
    assert not [line for line in lines if "service.access" in line]
