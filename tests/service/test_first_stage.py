"""Fusion with the first stage over HTTP: where the model cannot decide, the search that found the documents does."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from keyblock import Ranker
from keyblock.client import Client
from service.settings import Settings
from tests.service.conftest import rerank, warm
from tests.service.rankers import another

QUERY = "Which river flows through Vienna?"
THAMES, DANUBE = "The Thames flows through London.", "The Danube flows through Vienna, Bratislava and Budapest."
DOCUMENTS = [DANUBE, THAMES, DANUBE]  # the model says the same of the first and the last
SECOND_COPY = [7.5, 12.0, 9.0]  # the first stage prefers the last to the first, and the wrong one to both
FIRST_ALONE = {"name": "linear", "weight": 1}
MAPS = {"name": "mapfuse", "first_stage_map": 0.3, "model_map": 0.6}


def post(client: TestClient, **fields: Any) -> dict[str, Any]:
    return rerank(client, **{"query": QUERY, "documents": DOCUMENTS} | fields)


def order(answer: dict[str, Any]) -> list[int]:
    return [result["index"] for result in answer["results"]]


def test_the_first_stage_orders_two_copies_of_the_answer(embedded: TestClient) -> None:
    """By hand: .3 / 3 + .6 / 1 for the first, .3 / 1 + .6 / 3 for the Thames, .3 / 2 + .6 / 1 for the last."""
    alone = post(embedded)
    assert order(alone) == [0, 2, 1], "equals are in the order given"
    fused = post(embedded, first_stage_scores=SECOND_COPY, fusion=MAPS)
    assert order(fused) == [2, 0, 1]
    assert [result["fused_score"] for result in fused["results"]] == pytest.approx([0.75, 0.7, 0.5])
    assert fused["meta"]["warnings"] == []
    scores = {result["index"]: result["relevance_score"] for result in alone["results"]}
    for result in fused["results"]:
        assert result["relevance_score"] == pytest.approx(scores[result["index"]]), "it stays the model's"
    assert not any("fused_score" in result for result in alone["results"])


@pytest.mark.parametrize("name", ["linear", "mapfuse", "reciprocal_rank"])
def test_a_request_names_its_fusion(embedded: TestClient, name: str) -> None:
    assert order(post(embedded, first_stage_scores=[1, 0, 2], fusion=name)) == [2, 0, 1]


def test_other_options_follow_the_fused_order(embedded: TestClient) -> None:
    """`min_score` goes by the model's probability, so the first stage brings no wrong document past it."""
    fused = {"first_stage_scores": SECOND_COPY, "fusion": {"name": "linear", "weight": 1}}
    assert order(post(embedded, **fused)) == [1, 2, 0], "the first stage alone"
    assert order(post(embedded, **fused, top_n=2)) == [1, 2]
    low, high = sorted(result["relevance_score"] for result in post(embedded)["results"])[:2]
    kept = post(embedded, **fused, min_score=(low + high) / 2, top_n=1, prune=True, relevant_spans={"mode": "enabled"})
    assert (order(kept), kept["meta"]["below_min_score"]) == ([2], 1)
    assert "Danube" in kept["results"][0]["context"]["text"]


def test_scores_alone_change_nothing_where_the_bundle_names_no_fusion(client: TestClient) -> None:
    answer, alone = post(client, first_stage_scores=SECOND_COPY), post(client)
    assert order(answer) == order(alone)
    (warning,) = set(answer["meta"]["warnings"]) - set(alone["meta"]["warnings"])
    assert warning == "first_stage_scores: not used, since this model's bundle names no fusion; name one in `fusion`"


@pytest.mark.parametrize(
    ("fields", "where", "said"),
    [
        ({"first_stage_scores": [1, 2]}, "first_stage_scores", "has 2 scores for 3 documents: send one for each"),
        ({"first_stage_scores": [1, True, 3]}, "first_stage_scores", "should be a valid number"),
        ({"fusion": "x" * 9999, "first_stage_scores": [1, 2, 3]}, "fusion", "unknown fusion with the first stage"),
        ({"fusion": [MAPS], "first_stage_scores": [1, 2, 3]}, "fusion", "should be a name, or an object with one"),
    ],
)
def test_an_invalid_first_stage_is_one_clear_error(client: TestClient, fields: dict[str, Any], where: str, said: str) -> None:
    response = client.post("/rerank", json={"query": QUERY, "documents": DOCUMENTS} | fields)
    assert (response.status_code, response.json()["error"]["param"]) == (422, where)
    assert said in response.json()["message"]
    assert len(response.json()["message"]) < 500


def test_numbers_that_json_has_not_are_refused(client: TestClient) -> None:
    body = '{"query": "q", "documents": ["a"], "first_stage_scores": [%s]}'
    for number in ("NaN", "1e999", "-Infinity"):
        assert 400 <= client.post("/rerank", content=body % number).status_code < 500


def test_other_dialects_know_no_first_stage(client: TestClient) -> None:
    body = {"query": QUERY, "texts": DOCUMENTS}
    assert (
        client.post("/rerank", json=body | {"first_stage_scores": SECOND_COPY, "fusion": MAPS}).json()
        == client.post("/rerank", json=body).json()
    )


@pytest.fixture(scope="module")
def with_default(bundle_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small bundle, with a fusion of its own that listens to the first stage alone."""
    own = {"name": "linear", "first_stage": "scores", "weight": 1.0}
    return another(bundle_path, tmp_path_factory.mktemp("fused") / "bundle", "fused", first_stage=own)


@pytest.fixture(scope="module")
def fusing(settings: Settings, with_default: Path) -> Iterator[TestClient]:
    with warm(settings.model_copy(update={"bundle": (with_default,)})) as client:
        yield client


def test_a_bundles_own_fusion_is_for_requests_that_send_scores(fusing: TestClient, client: TestClient) -> None:
    assert order(post(fusing, first_stage_scores=SECOND_COPY)) == [1, 2, 0]
    assert order(post(fusing)) == order(post(client))
    assert order(post(fusing, fusion={"name": "linear", "first_stage": "order"})) == [0, 1, 2], "with the weight of the bundle"
    model_alone = post(fusing, first_stage_scores=SECOND_COPY, fusion={"name": "linear", "weight": 0})
    assert order(model_alone) == order(post(client))


def test_the_client_and_the_process_rank_as_the_service_does(fusing: TestClient, with_default: Path) -> None:
    fields: dict[str, Any] = {"first_stage_scores": SECOND_COPY, "fusion": MAPS}
    answered = Client(str(fusing.base_url), http=fusing).rerank(QUERY, DOCUMENTS, **fields)
    with Ranker.open(with_default, provider="cpu", precision="fp32") as ranker:
        ranked = ranker.rank(QUERY, DOCUMENTS, **fields)
        assert [result.index for result in ranker.rank(QUERY, DOCUMENTS, first_stage_scores=SECOND_COPY)] == [1, 2, 0]
        assert ranker.rank(QUERY, DOCUMENTS)[0].fused_score is None
    assert [result.index for result in ranked] == [result.index for result in answered] == order(post(fusing, **fields))
    assert [result.fused_score for result in ranked] == [result.fused_score for result in answered] != [None] * 3


def test_the_client_sends_scores_of_any_librarys_numbers(client: TestClient) -> None:
    def fused(scores: Any) -> list[int]:
        caller = Client(str(client.base_url), http=client)
        return [result.index for result in caller.rerank(QUERY, DOCUMENTS, first_stage_scores=scores, fusion=FIRST_ALONE)]

    assert fused(np.asarray(SECOND_COPY)) == fused([np.float32(score) for score in SECOND_COPY]) == fused(SECOND_COPY) == [1, 2, 0]
    with pytest.raises(TypeError, match=r"first_stage_scores\[1\] must be a number, not '2'"):
        fused([1, "2", 3])
