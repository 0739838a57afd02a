"""What a service says of itself: /info, health, the open inference protocol, /admin."""

from unittest.mock import AsyncMock

import pytest
from starlette.testclient import TestClient

from keyblock import __version__
from keyblock.bundle import FORMAT_VERSION
from keyblock.description import PipelineConfig
from service.ranking.ranker import Ranker
from service.ranking.reload import Reloader, ReloadError
from service.settings import Limits


def test_info_says_what_is_served(client: TestClient, ranker: Ranker) -> None:
    about = client.get("/info").json()
    named = [about[name] for name in ("version", "model", "format_version", "precision")]
    assert named == [__version__, "tiny", FORMAT_VERSION, "fp32"]
    assert about["provider"]["asked"] == about["provider"]["chosen"] == "cpu"
    assert "asked for" in about["provider"]["why"]
    assert (about["selector"]["name"], about["aggregator"]) == ("bm25", {"name": "joint"})
    assert about["graphs"] == {"ranker": {"precision": "fp32"}}
    assert PipelineConfig.model_validate(about["pipeline"]) == ranker.models.default.bundle.manifest.pipeline
    assert about["tokens_per_document"] == {"default": 128, "least": 64, "most": 256}
    assert about["quality"] == {"dev": {"nDCG@10": 0.5}}
    assert set(about["limits"]) == set(Limits.model_fields)
    assert about["limits"]["max_documents"] == 64


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


def test_a_reload_answers_what_is_served(client: TestClient) -> None:
    answer = client.post("/admin/reload").json()
    assert {**answer, "seconds": 0} == {"models": ["tiny"], "loaded": [], "removed": [], "keys": [], "seconds": 0}


def test_a_reload_that_failed_says_that_nothing_has_changed(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reloader, "reload", AsyncMock(side_effect=ReloadError("why")))
    answer = client.post("/admin/reload")
    assert (answer.status_code, answer.json()["message"]) == (409, "not reloaded, nothing has changed: why")


def test_info_names_no_path_of_the_machine(client: TestClient, ranker: Ranker) -> None:
    assert str(ranker.models.default.bundle.path) not in client.get("/info").text
