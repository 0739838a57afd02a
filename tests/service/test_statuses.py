"""Every status that the OpenAPI document promises can be had from the service, with the body that it promises."""

import asyncio
from collections.abc import Callable
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
    """A service with room for one request, ready unless it is asked cold, and its model's gate."""

    def __init__(self, client: TestClient, ranker: Ranker, faulty: Faulty, request: dict[str, Any]) -> None:
        self.client, self.ranker, self.faulty, self.request = client, ranker, faulty, request

    def cold(self, **changes: Any) -> httpx.Response:
        return self.client.post(RERANK_PATHS[0], **({"json": self.request} | changes))

    def ask(self, **changes: Any) -> httpx.Response:
        self.faulty.open.set()
        wait_for(lambda: self.ranker.worker.ready)
        return self.cold(**changes)

    def slow(self) -> httpx.Response:
        self.ranker.settings = self.ranker.settings.model_copy(update={"body_seconds": 0.01})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(endpoint, "read_body", lambda *_: asyncio.sleep(PATIENCE))
            return self.ask()

    def with_keys(self, **changes: Any) -> httpx.Response:
        app: Any = self.client.app
        app.state.keyring = load_keys(keyed(self.ranker.settings))
        return self.cold(**changes)

    def beside_another(self) -> httpx.Response:
        assert self.ask().status_code == 200
        self.faulty.open.clear()
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(self.cold)
            wait_for(lambda: self.ranker.admission.load.requests == 1)
            response = self.cold()
            self.faulty.open.set()
            assert first.result(PATIENCE).status_code == 200
        return response

    def failing(self) -> httpx.Response:
        assert self.ask().status_code == 200
        self.faulty.fault = RuntimeError("the device caught fire")
        return self.cold()


WAYS: dict[int, Callable[[Stage], httpx.Response]] = {
    200: Stage.ask,
    400: lambda stage: stage.ask(json=None, content=b"{"),
    401: Stage.with_keys,
    403: lambda stage: stage.with_keys(headers=bearing("ops")),
    408: Stage.slow,
    413: lambda stage: stage.ask(json=stage.request | {"query": "river " * (LARGEST // 6 + 1)}),
    415: lambda stage: stage.ask(headers={"content-encoding": "br"}),
    422: lambda stage: stage.ask(json=stage.request | {"query": 7}),
    429: Stage.beside_another,
    500: Stage.failing,
    503: Stage.cold,
}


def test_all_that_is_documented_is_tried(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert set(WAYS) == {200, *ERRORS}
    for path in RERANK_PATHS:
        assert {int(status) for status in paths[path]["post"]["responses"]} == set(WAYS)


@pytest.mark.parametrize("request_", [NATIVE, TEI], ids=["native", "tei"])
@pytest.mark.parametrize("status", WAYS)
def test_a_documented_status_can_be_had(
    settings: Settings, graphs: Graphs, faulty: Faulty, status: int, request_: dict[str, Any]
) -> None:
    small = settings.model_copy(update={"max_requests_in_flight": 1, "max_body_bytes": LARGEST})
    ranker = serving(small, graphs)
    faulty.open.clear()
    with TestClient(create_app(small, ranker)) as client:
        response = WAYS[status](Stage(client, ranker, faulty, request_))
        faulty.open.set()
    assert response.status_code == status, response.text
    tei = "texts" in request_ and status not in UNREAD
    shape: Any = (list[TeiResult] if tei else RerankAnswer) if status == 200 else TeiErrorBody if tei else ErrorBody
    TypeAdapter(shape).validate_json(response.content)
    assert ("retry-after" in response.headers) == (status in (429, 503))
