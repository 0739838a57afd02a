"""The open inference protocol's health and metadata, as its specification has them."""

import pytest
from fastapi import FastAPI
from starlette.testclient import TestClient

from keyblock import __version__
from service.http.inference import add_inference
from service.ranking.ranker import Ranker


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/v2", {"name": "keyblock", "version": __version__, "extensions": []}),
        ("/v2/health/live", {"live": True}),
        ("/v2/health/ready", {"ready": True}),
        ("/v2/models/tiny", {"name": "tiny", "platform": "keyblock", "inputs": [], "outputs": []}),
        ("/v2/models/tiny/ready", {"name": "tiny", "ready": True}),
    ],
)
def test_what_a_platform_asks(client: TestClient, path: str, answer: object) -> None:
    response = client.get(path)
    assert (response.status_code, response.json()) == (200, answer)


@pytest.mark.parametrize("path", ["/v2/models/other", "/v2/models/other/ready", "/v2/models/an/other/ready"])
def test_an_unknown_model_is_not_found(client: TestClient, path: str) -> None:
    response = client.get(path)
    assert response.status_code == 404
    assert "is not served here" in response.text


def test_tensors_are_not_taken(client: TestClient) -> None:
    response = client.post("/v2/models/tiny/infer", json={"inputs": []})
    assert response.status_code == 405
    assert "this path takes GET" in response.json()["error"]["message"]


def test_before_the_model_is_warm_nothing_is_ready(ranker: Ranker, monkeypatch: pytest.MonkeyPatch) -> None:
    class Cold:
        alive, hung, ready = True, False, False

    monkeypatch.setattr(ranker, "health", Cold())
    app = FastAPI()
    app.state.ranker, app.state.keyring = ranker, None
    add_inference(app)
    response = TestClient(app).get("/v2/models/tiny/ready")
    assert (response.status_code, response.json()) == (503, {"name": "tiny", "ready": False})
