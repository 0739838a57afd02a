"""Several bundles in one service: which of them answers, and that each answers as if it were alone."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from keyblock.bundle import load_bundle
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Precision, Provider
from keyblock.scoring import score_documents
from service.app import create_app
from service.settings import Settings
from tests.service.faults import wait_for
from tests.service.rankers import another

QUERY = "which river flooded the old bridge"
TEXTS = [f"Number {n}. " + "The river flooded the stone bridge. " * (n % 9) + "A city. " * n for n in range(15)]
DEFAULT = Path(__file__).parents[3] / "models" / "default"


@pytest.fixture(scope="module")
def paths(bundle_path: Path, bundle_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The embedded bundle, and four of small graphs: one that cuts the same text otherwise, and one of three graphs."""
    window = {"name": "window", "block_tokens": 30, "stride": 20}
    place = tmp_path_factory.mktemp("models") / "windows"
    return {
        "keyb-hybrid-minilm-l6": DEFAULT,
        "windows": another(bundle_path, place, "windows", segmenter=window),
        "tiny": bundle_path,
        "parade by binb2": bundle_of("parade by binb2"),
        "maxp": bundle_of("maxp"),
    }


def started(settings: Settings, *paths: Path, **changes: Any) -> TestClient:
    return TestClient(create_app(settings.model_copy(update={"bundle": paths, **changes})))


def wait_ready(client: TestClient) -> None:
    wait_for(lambda: client.get("/health/ready").status_code == 200)


@pytest.fixture(scope="module")
def client(settings: Settings, paths: dict[str, Path]) -> Iterator[TestClient]:
    with started(settings, *paths.values(), cache_bytes=1 << 26, max_wait_ms=10**6) as client:
        wait_ready(client)
        yield client


def ask(client: TestClient, model: str | None = None, **fields: Any) -> dict[str, Any]:
    request = {"query": QUERY, "documents": TEXTS, "model": model, "raw_scores": True, **fields}
    response = client.post("/rerank", json=request)
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


def by_index(answer: dict[str, Any]) -> list[float]:
    return [result["relevance_score"] for result in sorted(answer["results"], key=lambda result: int(result["index"]))]


def logits_alone(path: Path, texts: list[str], titles: list[str]) -> list[float]:
    """The bundle's scores of the documents without a service: the plain composition of its parts."""
    bundle = load_bundle(path)
    model = GraphModel.open(bundle, Provider.CPU, 1, Precision.FP32)
    prepared = bundle.pipeline.prepare_documents(texts, titles)
    scored = score_documents(bundle.pipeline, bundle.pipeline.prepare_query(QUERY), prepared, model)
    evidence = np.asarray([selection.evidence for selection in scored.selections])
    return [float(score) for score in bundle.manifest.pipeline.fusion.fuse(scored.logits, evidence)]


def test_each_answers_as_if_it_were_alone_whatever_comes_at_once(client: TestClient, paths: dict[str, Path]) -> None:
    """All of them at once, the same texts again and again, so that one cache and one thread serve them all."""
    expected = {name: logits_alone(path, TEXTS, [""] * len(TEXTS)) for name, path in paths.items()}
    assert len({tuple(np.round(scores, 2)) for scores in expected.values()}) == len(paths), "they say different things"
    names = list(paths) * 2
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda name: ask(client, name, second_look=False), names))
    for name, answer in zip(names, answers, strict=True):
        assert answer["model"] == name
        assert by_index(answer) == pytest.approx(expected[name], abs=1e-3)


@pytest.mark.parametrize("name", [None, "rerank-v3.5", "default/not-specified", "", "TINY"])
def test_an_unknown_model_name_is_answered_by_the_default(client: TestClient, name: str | None) -> None:
    answer = ask(client, name)
    assert answer["model"] == "keyb-hybrid-minilm-l6"
    warned = [warning for warning in answer["meta"]["warnings"] if warning.startswith("model: ")]
    assert len(warned) == (name is not None)
    assert all("'keyb-hybrid-minilm-l6' has answered" in warning and "'tiny'" in warning for warning in warned)


def test_an_unknown_model_name_is_an_error_in_a_strict_request(client: TestClient) -> None:
    request = {"query": QUERY, "documents": TEXTS, "model": "x" * 1000, "strict": True}
    response = client.post("/rerank", json=request)
    assert (response.status_code, response.json()["error"]["param"]) == (422, "model")
    assert response.json()["message"].startswith("model: 'xxxxx")
    assert "is not served here: there is 'keyb-hybrid-minilm-l6', 'windows', 'tiny'" in response.json()["message"]
    assert len(response.json()["message"]) < 300
    assert client.post("/rerank", json=request | {"model": None}).status_code == 200
    assert client.post("/rerank", json=request | {"model": "tiny"}).json()["model"] == "tiny"


def test_strict_models_holds_for_all_requests(settings: Settings, bundle_path: Path) -> None:
    with started(settings, bundle_path, strict_models=True) as client:
        wait_ready(client)
        for request in ({"documents": ["a"]}, {"texts": ["a"]}):
            response = client.post("/rerank", json={"query": "q", "model": "rerank-v3.5", **request})
            assert (response.status_code, "model: 'rerank-v3.5' is not served here" in response.json()["message"]) == (422, True)
            assert client.post("/rerank", json={"query": "q", "model": "tiny", **request}).status_code == 200
            assert client.post("/rerank", json={"query": "q", **request}).status_code == 200


def test_info_lists_them_all(client: TestClient, paths: dict[str, Path]) -> None:
    about = client.get("/info").json()
    assert [model["model"] for model in about["models"]] == list(paths)
    assert {**about, **about["models"][0]} == about, "the default one's are at the top"
    assert about["models"][1]["pipeline"]["segmenter"]["name"] == "window"
    assert (
        {model["precision"] for model in about["models"]}
        == {model["provider"]["arithmetic"] for model in about["models"]}
        == {"fp32"}
    )
    preparations = {model["model"]: model["preparation"] for model in about["models"]}
    assert preparations["tiny"] == preparations["parade by binb2"] == preparations["maxp"]
    assert len(set(preparations.values())) == 3


def test_models_that_prepare_differently_share_a_store_and_keep_apart_in_it(
    settings: Settings, paths: dict[str, Path], tmp_path: Path
) -> None:
    both = (paths["tiny"], paths["windows"])
    stored = [{"id": str(n), "text": text} for n, text in enumerate(TEXTS)]
    with started(settings, *both, store=str(tmp_path / "store")) as client:
        wait_ready(client)
        lines = b"\n".join(str(line).replace("'", '"').encode() for line in stored)
        assert client.put("/documents", content=lines).json()["stored"] == len(TEXTS)
        by_text = {name: ask(client, name, return_blocks=True)["results"] for name in ("tiny", "windows")}
        ids = [{"id": document["id"]} for document in stored]
        for name in ("tiny", "windows", "windows", "tiny"):
            by_id = ask(client, name, documents=ids, return_blocks=True)["results"]
            assert [{**result, "id": None} for result in by_id] == [{**result, "id": None} for result in by_text[name]]
        outcomes = client.get("/metrics").text
    assert f'keyblock_store_lookups_total{{outcome="hit"}} {2 * len(TEXTS)}.0' in outcomes, "the default's stay as they are"
    assert f'keyblock_store_lookups_total{{outcome="stale"}} {2 * len(TEXTS)}.0' in outcomes
