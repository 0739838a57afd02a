"""Several bundles in one service: which are found, which of them answers, and that each answers as if it were alone."""

import json
import logging
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from keyblock.bundle import BundleError, load_bundle
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Precision, Provider
from keyblock.scoring import score_documents
from service.ranking.loading import find_bundles, open_bundle, read_bundles
from service.settings import Settings
from tests.service.conftest import rerank, warm
from tests.service.rankers import another

QUERY = "which river flooded the old bridge"
TEXTS = [f"Number {n}. " + "The river flooded the stone bridge. " * (n % 9) + "A city. " * n for n in range(15)]


@pytest.fixture
def folder(bundle_path: Path, tmp_path: Path) -> Path:
    """A directory of bundles, with what lies beside them."""
    for name in ("zebra", "default", "apple"):
        another(bundle_path, tmp_path / "models" / name, name)
    shutil.copytree(bundle_path, tmp_path / "models" / ".half.partial")
    (tmp_path / "models" / "notes").mkdir()
    (tmp_path / "models" / "README").write_text("about them")
    return tmp_path / "models"


def test_of_a_directory_of_bundles_the_one_called_default_is_the_first(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, find_bundles.__module__):
        assert [path.name for path in find_bundles([folder])] == ["default", "apple", "zebra"]
    assert caplog.messages == [f"{folder / 'notes'}: holds no bundle.json, so it is not served"]


def test_paths_keep_their_order(folder: Path, bundle_path: Path) -> None:
    assert find_bundles([folder / "zebra", bundle_path, folder / "apple"]) == [folder / "zebra", bundle_path, folder / "apple"]
    assert [path.name for path in find_bundles([bundle_path, folder])] == ["tiny", "default", "apple", "zebra"]
    assert find_bundles([Path("no/such"), folder / "notes"]) == [Path("no/such"), folder / "notes"], "to load them tells"


def test_two_of_one_name_are_refused_in_one_line(settings: Settings, bundle_path: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError) as caught:
        read_bundles(settings.model_copy(update={"bundle": (bundle_path, another(bundle_path, tmp_path / "b", "tiny"))}))
    assert str(caught.value) == (
        f"{tmp_path / 'b'}: its model is called 'tiny', as is that of {bundle_path}; change 'name' in a bundle.json"
    )


@pytest.mark.parametrize("wrong", ["missing", "empty", "garbage"])
def test_one_bad_bundle_among_good_ones_is_refused(settings: Settings, bundle_path: Path, tmp_path: Path, wrong: str) -> None:
    if wrong != "missing":
        (tmp_path / wrong).mkdir()
    if wrong == "garbage":
        (tmp_path / wrong / "bundle.json").write_bytes(b"\x00garbage")
    with pytest.raises(BundleError, match=str(tmp_path / wrong)) as caught:
        read_bundles(settings.model_copy(update={"bundle": (bundle_path, tmp_path / wrong)}))
    assert "\n" not in str(caught.value)


def test_a_batch_is_decided_ahead_where_a_gpu_computes(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    (bundle,) = read_bundles(settings)
    model = GraphModel.open(bundle, Provider.CPU, 1)
    monkeypatch.setattr(GraphModel, "open", lambda *_: model)
    for provider, ahead in ((Provider.CPU, 0), (Provider.OPENVINO, 0), (Provider.CUDA, 1), (Provider.TENSORRT, 1)):
        model.session.choice = replace(model.session.choice, provider=provider)
        opened = open_bundle(bundle, settings)
        assert opened.graphs is not None
        assert opened.graphs.ahead == ahead, provider


@pytest.fixture(scope="module")
def paths(bundle_path: Path, bundle_of: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Among them one that cuts the same text otherwise, and one of three graphs."""
    window = {"name": "window", "block_tokens": 30, "stride": 20}
    return {
        "tiny": bundle_path,
        "windows": another(bundle_path, tmp_path_factory.mktemp("models") / "windows", "windows", segmenter=window),
        "parade by binb2": bundle_of("parade by binb2"),
        "maxp": bundle_of("maxp"),
    }


@pytest.fixture(scope="module")
def client(settings: Settings, paths: dict[str, Path]) -> Iterator[TestClient]:
    changes = {"bundle": tuple(paths.values()), "cache_bytes": 1 << 26, "max_wait_ms": 10**6}
    with warm(settings.model_copy(update=changes)) as client:
        yield client


def ask(client: TestClient, model: str | None = None, **fields: Any) -> dict[str, Any]:
    return rerank(client, **{"query": QUERY, "documents": TEXTS, "model": model, "raw_scores": True, **fields})


def logits_alone(path: Path, texts: list[str]) -> list[float]:
    """The bundle's scores of the documents without a service: the plain composition of its parts."""
    bundle = load_bundle(path)
    model = GraphModel.open(bundle, Provider.CPU, 1, Precision.FP32)
    prepared = bundle.pipeline.prepare_documents(texts, [""] * len(texts))
    scored = score_documents(bundle.pipeline, bundle.pipeline.prepare_query(QUERY), prepared, model)
    evidence = np.asarray([selection.evidence for selection in scored.selections])
    return [float(score) for score in bundle.manifest.pipeline.fusion.fuse(scored.logits, evidence)]


def test_each_answers_as_if_it_were_alone_whatever_comes_at_once(client: TestClient, paths: dict[str, Path]) -> None:
    """All of them at once, the same texts again and again, so that one cache and one thread serve them all."""
    expected = {name: logits_alone(path, TEXTS) for name, path in paths.items()}
    assert len({tuple(np.round(scores, 2)) for scores in expected.values()}) == len(paths), "they say different things"
    names = list(paths) * 2
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda name: ask(client, name, second_look=False), names))
    for name, answer in zip(names, answers, strict=True):
        assert answer["model"] == name
        scores = {result["index"]: result["relevance_score"] for result in answer["results"]}
        assert [scores[number] for number in range(len(TEXTS))] == pytest.approx(expected[name], abs=1e-3)


@pytest.mark.parametrize("name", [None, "rerank-v3.5", "default/not-specified", "", "WINDOWS"])
def test_an_unknown_model_name_is_answered_by_the_default(client: TestClient, name: str | None) -> None:
    answer = ask(client, name)
    assert answer["model"] == "tiny"
    warned = [warning for warning in answer["meta"]["warnings"] if warning.startswith("model: ")]
    assert len(warned) == (name is not None)
    assert all("'tiny' has answered" in warning and "'windows'" in warning for warning in warned)


def test_an_unknown_model_name_is_an_error_in_a_strict_request(client: TestClient) -> None:
    request = {"query": QUERY, "documents": TEXTS, "model": "x" * 1000, "strict": True}
    response = client.post("/rerank", json=request)
    assert (response.status_code, response.json()["error"]["param"]) == (422, "model")
    assert response.json()["message"].startswith("model: 'xxxxx")
    assert "is not served here: there is 'tiny', 'windows', 'parade by binb2'" in response.json()["message"]
    assert len(response.json()["message"]) < 300
    assert client.post("/rerank", json=request | {"model": None}).status_code == 200
    assert client.post("/rerank", json=request | {"model": "maxp"}).json()["model"] == "maxp"


def test_strict_models_holds_for_all_requests(settings: Settings) -> None:
    with warm(settings.model_copy(update={"strict_models": True})) as client:
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
    assert {(model["precision"], model["provider"]["arithmetic"]) for model in about["models"]} == {("fp32", "fp32")}
    preparations = {model["model"]: model["preparation"] for model in about["models"]}
    assert preparations["tiny"] == preparations["parade by binb2"] == preparations["maxp"] != preparations["windows"]


def test_models_that_prepare_differently_share_a_store_and_keep_apart_in_it(
    settings: Settings, paths: dict[str, Path], tmp_path: Path
) -> None:
    ids = [{"id": str(n)} for n in range(len(TEXTS))]
    lines = "\n".join(json.dumps({**one, "text": text}) for one, text in zip(ids, TEXTS, strict=True))
    changes = {"bundle": (paths["tiny"], paths["windows"]), "store": str(tmp_path / "store")}
    with warm(settings.model_copy(update=changes)) as client:
        assert client.put("/documents", content=lines).json()["stored"] == len(TEXTS)
        by_text = {name: ask(client, name, return_blocks=True)["results"] for name in ("tiny", "windows")}
        for name in ("tiny", "windows", "windows", "tiny"):
            by_id = ask(client, name, documents=ids, return_blocks=True)["results"]
            assert [{**result, "id": None} for result in by_id] == [{**result, "id": None} for result in by_text[name]]
        outcomes = client.get("/metrics").text
    assert f'keyblock_store_lookups_total{{outcome="hit"}} {2 * len(TEXTS)}.0' in outcomes, "the default's stay as they are"
    assert f'keyblock_store_lookups_total{{outcome="stale"}} {2 * len(TEXTS)}.0' in outcomes
