"""A service with API keys: who may ask what, whose documents are whose, and what those who may not are told."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from keyblock.wire import ErrorBody
from service import playground, reference
from service.app import JOINED_PATHS, RERANK_PATHS, create_admin_app, create_app
from service.http.auth import SCHEME
from service.http.info import HEALTH
from service.ranking.ranker import Ranker
from service.settings import Settings
from tests.service.conftest import warm
from tests.service.faults import Connection
from tests.service.keyed import bearing, keyed
from tests.service.rankers import sample

GOOD: dict[str, Any] = {"query": "river bridge", "documents": ["the river flooded the bridge", "a city"]}
PAGES = {"/openapi.json", *(route.path for route in (*playground.routes(), *reference.routes()))}
OPEN = {*HEALTH, *PAGES}  # for everybody: nothing of a document is there


@pytest.fixture(scope="module")
def guarded(settings: Settings, tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    """The application with keys and a store, started and warm."""
    store = str(tmp_path_factory.mktemp("guarded") / "store")
    with warm(keyed(settings, store=store)) as client:
        yield client


def put(client: TestClient, name: str, identity: str, text: str) -> None:
    response = client.put("/documents", content=json.dumps({"id": identity, "text": text}), headers=bearing(name))
    assert response.json()["stored"] == 1, response.text


def texts(client: TestClient, name: str, identity: str) -> tuple[str | None, str | None]:
    """The document as a key's holder reads it: by its id, and in an answer."""
    read = client.get(f"/documents/{identity}", headers=bearing(name))
    body = {"query": "river", "documents": [{"id": identity}], "return_documents": True}
    ranked = client.post("/rerank", json=body, headers=bearing(name)).json()["results"][0]
    return read.json().get("text"), ranked.get("document", {}).get("text")


def test_every_route_needs_a_key_but_those_for_everybody(guarded: TestClient) -> None:
    app: Any = guarded.app
    asked = 0
    for routes in (app.routes, create_admin_app(app).routes):
        for route in routes:
            if route.path in OPEN:
                continue
            for method in route.methods - {"HEAD"}:
                asked += 1
                path = route.path.replace("{id:any}", "danube")
                response = guarded.request(method, path, content=b"not read")
                assert response.status_code == 401, (method, path)
                assert isinstance(route, APIRoute)
    assert asked >= len(RERANK_PATHS) * 2 + len(JOINED_PATHS) + 5


def test_which_models_are_served_is_told_to_keys_alone(guarded: TestClient) -> None:
    name = guarded.get("/info", headers=bearing("reader")).json()["model"]
    for asked in (name, "another"):
        answers = [guarded.get(f"/v2/models/{asked}{rest}") for rest in ("", "/ready")]
        assert [answer.status_code for answer in answers] == [401, 401]
        assert all(name not in answer.text for answer in answers)
    assert guarded.get(f"/v2/models/{name}/ready", headers=bearing("reader")).json() == {"name": name, "ready": True}


@pytest.mark.parametrize("path", HEALTH)
def test_health_needs_none(guarded: TestClient, path: str) -> None:
    assert guarded.get(path).status_code == guarded.head(path).status_code == 200


@pytest.mark.parametrize(
    ("name", "method", "path", "status"),
    [
        ("alice", "POST", "/rerank", 422),
        ("alice", "GET", "/documents/none", 404),
        ("alice", "GET", "/metrics", 403),
        ("reader", "POST", "/v2/rerank/", 422),
        ("reader", "GET", "/documents/none", 403),
        ("reader", "DELETE", "/documents/none", 403),
        ("reader", "PUT", "/documents", 403),
        ("reader", "GET", "/info", 200),
        ("ops", "POST", "/rerank", 403),
        ("ops", "GET", "/metrics", 200),
        ("ops", "POST", "/admin/reload", 200),
        ("alice", "POST", "/admin/reload", 403),
        ("ops", "GET", "/info", 200),
    ],
)
def test_a_key_may_do_what_its_scopes_allow(guarded: TestClient, name: str, method: str, path: str, status: int) -> None:
    response = guarded.request(method, path, content=b"{}", headers=bearing(name))
    assert response.status_code == status, response.text


@pytest.mark.parametrize("path", [*RERANK_PATHS, *JOINED_PATHS])
@pytest.mark.parametrize("body", [b'{"query": "q", "texts": ["a"]}', b"not JSON"])
def test_a_missing_key_is_explained_in_all_dialects(guarded: TestClient, path: str, body: bytes) -> None:
    response = guarded.post(path, content=body, headers={"authorization": "Bearer any"})
    answer = TypeAdapter(ErrorBody).validate_json(response.content)
    assert (response.status_code, response.headers["www-authenticate"]) == (401, "Bearer")
    assert (answer["error"]["type"], answer["error"]["code"], answer["error_type"]) == ("unauthorized", 401, "Unauthorized")
    assert answer["message"] == answer["detail"] == answer["error"]["message"]
    assert "connection" not in response.headers
    assert "any`" not in response.text


def test_a_scope_that_is_missing_is_named(guarded: TestClient) -> None:
    response = guarded.post("/rerank", json=GOOD, headers=bearing("ops"))
    assert (response.status_code, response.json()["error_type"]) == (403, "Forbidden")
    assert "'ops'" in response.json()["message"]
    assert "'rank'" in response.json()["message"]
    assert "www-authenticate" not in response.headers


def test_a_body_is_thrown_away_unread_and_bounded(guarded: TestClient, settings: Settings) -> None:
    """A client that may not ask gets its answer even if it sends all of its body first; what has no end is not read to it."""
    received = 0

    async def endless() -> dict[str, Any]:
        nonlocal received
        received += 1
        return {"type": "http.request", "body": b"x" * 2**20, "more_body": True}

    connection = Connection(GOOD)

    connection.receive = endless  # type: ignore[method-assign]
    asyncio.run(connection.ask(guarded.app))
    assert connection.status == 401
    assert (b"connection", b"close") in connection.sent[0]["headers"]
    assert received * 2**20 <= 4 * settings.max_body_bytes + 2**20


def test_a_client_that_asks_first_is_refused_before_it_sends(guarded: TestClient) -> None:
    response = guarded.put("/documents", content=b"{}", headers={"expect": "100-continue"})
    assert (response.status_code, response.headers["connection"]) == (401, "close")


def test_two_keys_never_see_each_others_documents(guarded: TestClient) -> None:
    put(guarded, "alice", "danube", "The river of Alice.")
    put(guarded, "bob", "danube", "The river of Bob.")
    put(guarded, "bob", "thames", "Another river of Bob.")
    assert texts(guarded, "alice", "danube") == ("The river of Alice.",) * 2
    assert texts(guarded, "bob", "danube") == ("The river of Bob.",) * 2
    assert texts(guarded, "alice", "thames") == (None, None)
    body = {"query": "river", "documents": [{"id": "thames"}], "strict": True}
    assert guarded.post("/rerank", json=body, headers=bearing("alice")).status_code == 422
    assert guarded.delete("/documents/thames", headers=bearing("alice")).json()["deleted"] is False
    assert guarded.delete("/documents/danube", headers=bearing("alice")).json()["deleted"] is True
    assert texts(guarded, "alice", "danube") == (None, None)
    assert texts(guarded, "bob", "danube") == ("The river of Bob.",) * 2


@pytest.mark.parametrize("identity", ["danube", "bob:danube", ":bob:danube", "..%2Fbob%2Fdanube", "bob/danube"])
def test_no_id_reaches_into_another_namespace(guarded: TestClient, identity: str) -> None:
    put(guarded, "bob", "danube", "The river of Bob.")
    assert texts(guarded, "alice", identity) == (None, None)


def test_keys_that_share_a_namespace_share_documents(guarded: TestClient) -> None:
    put(guarded, "alice", "elbe", "The river Elbe.")
    assert texts(guarded, "carol", "elbe") == ("The river Elbe.",) * 2
    body = {"query": "river", "documents": [{"id": "elbe"}], "strict": True}
    assert guarded.post("/rerank", json=body, headers=bearing("reader")).status_code == 200
    assert guarded.delete("/documents/elbe", headers=bearing("carol")).json()["deleted"] is True
    assert texts(guarded, "alice", "elbe") == (None, None)


def test_what_was_denied_is_counted(guarded: TestClient) -> None:
    app: Any = guarded.app

    def denied() -> list[float]:
        return [sample(app.state.ranker, "denied", why=why) for why in ("no_key", "unknown_key", "scope")]

    before = denied()
    for header in ({}, {"authorization": "Bearer  "}, {"authorization": "Bearer any"}, bearing("ops")):
        guarded.post("/rerank", json=GOOD, headers=header)
    assert denied() == [before[0] + 2, before[1] + 1, before[2] + 1]


def test_openapi_says_which_scope_an_operation_needs(guarded: TestClient, client: TestClient) -> None:
    document = guarded.get("/openapi.json").json()
    scheme = document["components"]["securitySchemes"][SCHEME]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    needed = {
        (path, method): operation.get("security")
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
    }
    assert needed["/rerank", "post"] == [{SCHEME: ["rank"]}]
    assert needed["/documents/{id}", "get"] == [{SCHEME: ["documents"]}]
    assert needed["/metrics", "get"] == [{SCHEME: ["metrics"]}]
    assert needed["/info", "get"] == [{SCHEME: []}]
    assert needed["/health/live", "get"] is None
    for operations in document["paths"].values():
        for operation in operations.values():
            assert ("401" in operation["responses"]) == ("403" in operation["responses"]) == ("security" in operation)
    unkeyed = client.get("/openapi.json").json()
    assert SCHEME in unkeyed["components"]["securitySchemes"]
    assert all("security" not in operation for operations in unkeyed["paths"].values() for operation in operations.values())


def test_no_page_may_ask_unless_its_origin_is_allowed(guarded: TestClient, settings: Settings, ranker: Ranker) -> None:
    asks = {"origin": "https://a.example", "access-control-request-method": "POST"}
    asks |= {"access-control-request-headers": "authorization"}
    assert guarded.options("/rerank", headers=asks).status_code == 405
    assert not [name for name in guarded.get("/health/live", headers=asks).headers if name.startswith("access-control")]
    named = settings.model_copy(update={"cors_origins": "https://a.example, https://b.example"})
    open_to = TestClient(create_app(named, ranker))
    answer = open_to.options("/rerank", headers=asks)
    assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (200, "https://a.example")
    assert answer.headers["access-control-allow-headers"] == "authorization"
    assert "access-control-allow-credentials" not in answer.headers
    refused = open_to.options("/rerank", headers=asks | {"origin": "https://c.example"})
    assert "access-control-allow-origin" not in refused.headers


def test_a_page_reads_why_it_is_denied(settings: Settings, ranker: Ranker) -> None:
    """An answer without the headers of CORS is kept from it by its browser."""
    response = TestClient(create_app(keyed(settings, cors_origins="*"), ranker)).post(
        "/rerank", json=GOOD, headers={"origin": "https://c.example"}
    )
    assert (response.status_code, response.headers["access-control-allow-origin"]) == (401, "*")
    assert "X-Request-ID" in response.headers["access-control-expose-headers"]
