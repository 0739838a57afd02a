from starlette.testclient import TestClient

from keyblock import __version__
from keyblock.bundle import FORMAT_VERSION
from keyblock.description import PipelineConfig
from service.ranking.ranker import Ranker
from service.settings import Limits


def test_info_says_what_is_served(client: TestClient, ranker: Ranker) -> None:
    about = client.get("/info").json()
    assert (about["version"], about["model"], about["format_version"], about["precision"]) == (
        __version__,
        "tiny",
        FORMAT_VERSION,
        "fp32",
    )
    assert about["provider"]["asked"] == about["provider"]["chosen"] == "cpu"
    assert "asked for" in about["provider"]["why"]
    assert (about["selector"]["name"], about["aggregator"], about["graphs"]) == (
        "bm25",
        {"name": "joint"},
        {"ranker": {"precision": "fp32"}},
    )
    assert PipelineConfig.model_validate(about["pipeline"]) == ranker.models.default.bundle.manifest.pipeline
    assert about["tokens_per_document"] == {"default": 128, "least": 64, "most": 256}
    assert about["quality"] == {"dev": {"nDCG@10": 0.5}}
    assert set(about["limits"]) == set(Limits.model_fields)
    assert about["limits"]["max_documents"] == 64


def test_info_says_what_scores_are_worth(client: TestClient) -> None:
    """The tiny bundle marks nothing and was not calibrated."""
    assert client.get("/info").json()["answers"] == {
        "marks_spans": False,
        "min_score": None,
        "threshold": None,
        "answers": None,
        "reliability": None,
        "spans": None,
    }


def test_info_names_no_path_of_the_machine(client: TestClient, ranker: Ranker) -> None:
    assert str(ranker.models.default.bundle.path) not in client.get("/info").text


def test_health(client: TestClient) -> None:
    assert (client.get("/health/live").status_code, client.get("/health/live").json()) == (200, {"status": "live"})
    assert (client.get("/health/ready").status_code, client.get("/health/ready").json()) == (200, {"status": "ready"})
