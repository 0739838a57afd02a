"""The service held to its own OpenAPI document by schemathesis: whatever is sent, what comes back is documented, and no 5xx."""

import re
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
import schemathesis
import uvicorn
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi.checks import negative_data_rejection, positive_data_acceptance

from service.app import create_app
from service.ranking.ranker import Ranker
from service.settings import Settings
from tests.service.faults import wait_for


@pytest.fixture(scope="module")
def url(settings_of_the_service: Settings) -> Iterator[str]:
    """A real server: schemathesis speaks HTTP."""
    app = create_app(settings_of_the_service, Ranker.load(settings_of_the_service))
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_config=None, lifespan="on"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(lambda: server.started)
    host, port = server.servers[0].sockets[0].getsockname()
    url = f"http://{host}:{port}"
    wait_for(lambda: httpx.get(f"{url}/health/ready").status_code == 200)
    yield url
    server.should_exit = True
    thread.join()


@pytest.fixture(scope="module")
def settings_of_the_service(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Settings:
    """The fixture `settings`, whose name hypothesis has here, with a store."""
    given_settings: Settings = request.getfixturevalue("settings")
    return given_settings.model_copy(update={"store": str(tmp_path_factory.mktemp("store"))})


POSTS = ("/rerank", "/score", "/v1/ranking")
GETS = ("/info", "/v1/models", "/metrics", "/health", "/health/live", "/health/ready", "/v2", "/v2/health/live", "/v2/health/ready")
NAMED = ("/v2/models/{name}", "/v2/models/{name}/ready")


@pytest.mark.parametrize(
    ("method", "path", "mode"),
    [
        *(("POST", path, mode) for path in POSTS for mode in GenerationMode),
        *(("GET", path, GenerationMode.POSITIVE) for path in (*GETS, *NAMED)),
        *((method, "/documents/{id}", GenerationMode.POSITIVE) for method in ("GET", "DELETE")),
    ],
)
def test_every_answer_is_documented(url: str, method: str, path: str, mode: GenerationMode) -> None:
    """To requests that fit the document, and to such that do not.

    Which of them are accepted is for the dialects' tests: two shapes with free fields overlap, so that no schema tells exactly.
    """
    operation = schemathesis.openapi.from_url(f"{url}/openapi.json")[path][method]
    answered: list[int] = []

    @settings(max_examples=15, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
    @given(operation.as_strategy(generation_mode=mode))
    def holds(case: Any) -> None:
        response = case.call()
        answered.append(response.status_code)
        assert response.status_code < 500
        case.validate_response(response, excluded_checks=[positive_data_acceptance, negative_data_rejection])

    holds()
    assert answered


def test_the_document_is_valid(url: str) -> None:
    """It fits OpenAPI's own schema, and each name in a path is a parameter, which that schema cannot say."""
    schema = schemathesis.openapi.from_url(f"{url}/openapi.json")
    schema.validate()
    for path, operations in schema.raw_schema["paths"].items():
        for operation in operations.values():
            declared = [one["name"] for one in operation.get("parameters", ()) if one["in"] == "path"]
            assert declared == re.findall(r"{(\w+)}", path), path
