"""Every status that the OpenAPI document promises can be had from the service, with the body that it promises."""

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from keyblock.wire import ErrorBody, RerankAnswer, TeiErrorBody, TeiResult
from service.app import ERRORS, RERANK_PATHS, create_app
from service.http import endpoint
from service.keys.keys import load_keys
from service.queue.graphs import Graphs
from service.ranking.ranker import Ranker
from service.settings import Settings
from tests.service.faults import PATIENCE, Faulty, wait_for
from tests.service.keyed import bearing, keyed
from tests.service.rankers import serving

NATIVE: dict[str, Any] = {"query": "river bridge", "documents": ["the river flooded the bridge", "a city"]}
TEI: dict[str, Any] = {"query": "river bridge", "texts": ["the river flooded the bridge", "a city"]}
UNREAD = {400, 401, 403, 408, 413, 415, 429, 503}  # answered before the body tells the dialect
LARGEST = 1_000_000


class Stage:
    """A service with room for one request, and its model's gate."""

    def __init__(self, client: TestClient, ranker: Ranker, faulty: Faulty) -> None:
        self.client = client
        self._ranker = ranker
        self._faulty = faulty

    def ask(self, path: str, request: dict[str, Any]) -> httpx.Response:
        self.warm()
        return self.client.post(path, json=request)

    def warm(self) -> None:
        self._faulty.open.set()
        wait_for(lambda: self._ranker.worker.ready)

    def cut(self, path: str, request: dict[str, Any]) -> httpx.Response:
        self.warm()
        return self.client.post(path, content=b"{")

    def large(self, path: str, request: dict[str, Any]) -> httpx.Response:
        return self.ask(path, request | {"query": "river " * (LARGEST // 6 + 1)})

    def slow(self, path: str, request: dict[str, Any]) -> httpx.Response:
        self.warm()
        self._ranker.settings = self._ranker.settings.model_copy(update={"body_seconds": 0.01})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(endpoint, "read_body", lambda *_: asyncio.sleep(PATIENCE))
            return self.client.post(path, json=request)

    def without_key(self, path: str, request: dict[str, Any]) -> httpx.Response:
        self._with_keys()
        return self.client.post(path, json=request)

    def without_scope(self, path: str, request: dict[str, Any]) -> httpx.Response:
        self._with_keys()
        return self.client.post(path, json=request, headers=bearing("ops"))

    def _with_keys(self) -> None:
        app: Any = self.client.app
        app.state.keyring = load_keys(keyed(self._ranker.settings))

    def packed(self, path: str, request: dict[str, Any]) -> httpx.Response:
        self.warm()
        return self.client.post(path, json=request, headers={"content-encoding": "br"})

    def wrong(self, path: str, request: dict[str, Any]) -> httpx.Response:
        return self.ask(path, request | {"query": 7})

    def beside_another(self, path: str, request: dict[str, Any]) -> httpx.Response:
        self.warm()
        self._faulty.open.clear()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(self.client.post, path, json=request)
            wait_for(lambda: self._ranker.admission.load.requests == 1)
            response = self.client.post(path, json=request)
            self._faulty.open.set()
            assert first.result(PATIENCE).status_code == 200
        return response

    def failing(self, path: str, request: dict[str, Any]) -> httpx.Response:
        self.warm()
        self._faulty.fault = RuntimeError("the device caught fire")
        return self.client.post(path, json=request)

    def cold(self, path: str, request: dict[str, Any]) -> httpx.Response:
        return self.client.post(path, json=request)


WAYS: dict[int, Callable[[Stage, str, dict[str, Any]], httpx.Response]] = {
    200: Stage.ask,
    400: Stage.cut,
    401: Stage.without_key,
    403: Stage.without_scope,
    408: Stage.slow,
    413: Stage.large,
    415: Stage.packed,
    422: Stage.wrong,
    429: Stage.beside_another,
    500: Stage.failing,
    503: Stage.cold,
}


@pytest.fixture
def stage(settings: Settings, graphs: Graphs, faulty: Faulty) -> Iterator[Stage]:
    small = settings.model_copy(update={"max_requests_in_flight": 1, "max_body_bytes": LARGEST})
    ranker = serving(small, graphs)
    faulty.open.clear()
    with TestClient(create_app(small, ranker)) as client:
        yield Stage(client, ranker, faulty)
        faulty.open.set()


def test_all_that_is_documented_is_tried(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert set(WAYS) == {200, *ERRORS}
    for path in RERANK_PATHS:
        assert {int(status) for status in paths[path]["post"]["responses"]} == set(WAYS)


@pytest.mark.parametrize("request_", [NATIVE, TEI], ids=["native", "tei"])
@pytest.mark.parametrize("status", WAYS)
def test_a_documented_status_can_be_had(stage: Stage, status: int, request_: dict[str, Any]) -> None:
    response = WAYS[status](stage, RERANK_PATHS[0], request_)
    assert response.status_code == status, response.text
    tei = "texts" in request_ and status not in UNREAD
    shape: Any = (list[TeiResult] if tei else RerankAnswer) if status == 200 else TeiErrorBody if tei else ErrorBody
    TypeAdapter(shape).validate_json(response.content)
    assert ("retry-after" in response.headers) == (status in (429, 503))
