import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from starlette.testclient import TestClient

from export import ExportError
from export.certificate import ALLOWED
from export.importing import import_model, own_name
from export.options import ImportOptions, VariantKind, WeightPrecision
from keyblock.bundle import BundleError, load_bundle
from keyblock.fusion import Activation, Fusion
from keyblock.ranker import Ranker
from keyblock.runtime.providers import Provider, resolve
from service.app import create_app
from service.settings import Settings
from tests.support.checkpoints import save_checkpoint

FEW = ImportOptions(pairs=16, provider=Provider.CPU)


def test_the_default_pipeline_is_passages_of_the_models_habit(imported: Callable[[str], Path]) -> None:
    bundle = load_bundle(imported("bert"))
    config = bundle.manifest.pipeline
    assert config.aggregator == {"name": "max", "passages": 3}
    assert config.segmenter["name"] == "structure"
    assert config.packing.grow
    assert (config.packing.budget, config.packing.budget_range[1]) == (128, 512)
    assert config.fusion == Fusion()
    assert config.activation == Activation()
    assert config.analyzer.name == "universal", "the tiny tokenizer spells the words of all languages alike"
    assert bundle.frequencies.n_documents == 0, "the general table is of English documents"
    assert bundle.manifest.provenance["import"]["labels"] == 1
    assert bundle.manifest.quality["import"]["provider"] == resolve(Provider.AUTO).provider


def test_an_unfit_place_is_refused_before_anything_is_done(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("a letter", encoding="utf-8")
    with pytest.raises(BundleError, match="is not empty"):
        import_model("no-such-model", tmp_path, FEW)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


@pytest.mark.parametrize(
    ("folder", "noted", "expected"),
    [
        ("model", "someone/their-reranker", "their-reranker"),
        ("model", "../models/bert", "model"),
        ("models--someone--a-reranker/snapshots/0a1b2c", "", "a-reranker"),
        ("mine", None, "mine"),
    ],
)
def test_a_model_keeps_its_own_name(tmp_path: Path, folder: str, noted: str | None, expected: str) -> None:
    source = tmp_path / folder
    source.mkdir(parents=True)
    (source / "config.json").write_text(json.dumps({} if noted is None else {"_name_or_path": noted}), encoding="utf-8")
    assert own_name(str(source)) == expected
    assert own_name("someone/bge-reranker-base") == "bge-reranker-base"


def test_a_graph_that_says_something_else_leaves_nothing(
    checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.certificate.ALLOWED", 0.0)
    with pytest.raises(ExportError, match=r"the graph's logits differ from transformers' by up to .* over 16 pairs"):
        import_model(str(checkpoint("bert")), tmp_path / "out", FEW)
    assert list(tmp_path.iterdir()) == []


def test_weights_beyond_what_a_file_holds(
    checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("export.storage.LARGEST", 10_000)
    bundle = import_model(str(checkpoint("xlm-roberta")), tmp_path / "out", FEW)
    assert {"model.onnx", "model.onnx.data"} <= bundle.manifest.files.keys()
    assert (bundle.path / "model.onnx.data").stat().st_size > 50_000
    with Ranker.open(bundle.path, provider="cpu") as ranker:
        ranking = ranker.rank("a bridge", ["The river took the bridge. " * 60, "Bread."], raw_scores=True)
    assert all(np.isfinite(one.relevance_score) for one in ranking)
    with pytest.raises(ExportError, match="the int8 graph has more than 2 GiB, which no variant may have"):
        import_model(str(checkpoint("xlm-roberta")), tmp_path / "int8", replace(FEW, variants=[VariantKind.INT8]))
    assert [path.name for path in tmp_path.iterdir()] == ["out"]


def test_two_labels_and_half_weights_and_int8(tmp_path: Path) -> None:
    source = save_checkpoint("bert", tmp_path / "two", labels=2)
    options = ImportOptions(
        pairs=16, provider=Provider.CPU, precision=WeightPrecision.FP16, variants=[VariantKind.INT8], joint=True, name="mine"
    )
    bundle = import_model(str(source), tmp_path / "out", options)
    manifest = bundle.manifest
    assert (manifest.name, manifest.pipeline.aggregator["name"]) == ("mine", "joint")
    assert manifest.quality["certificate"]["logits"]["max"] <= ALLOWED
    assert 0 < manifest.quality["import"]["logits"]["max"] < 1, "half of the bytes"
    assert manifest.variants["int8"].quality["logits"]["max"] > 0, "and the loss of the variant is told"
    assert manifest.provenance["import"]["labels"] == 2


@pytest.mark.skipif("OpenVINOExecutionProvider" not in onnxruntime.get_available_providers(), reason="no OpenVINO is here")
def test_a_graph_that_one_provider_cannot_load_is_served_by_the_next_and_the_bundle_says_so(
    checkpoint: Callable[[str], Path], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bundle = import_model(str(checkpoint("modernbert-cls")), tmp_path / "out", replace(FEW, provider=Provider.AUTO))
    assert bundle.manifest.fails_on == {"openvino": onnxruntime.__version__}
    measured = bundle.manifest.quality["import"]
    assert (measured["provider"], measured["precision"]) == ("cpu", "fp32")
    assert measured["logits"]["max"] <= ALLOWED
    assert "no openvino: it cannot load the graph (Expected output number of SkipLayerNormalization" in measured["why"]
    caplog.clear()
    settings = Settings(bundle=(bundle.path,), threads=1, token_cap=512)
    with caplog.at_level("INFO"), TestClient(create_app(settings)) as client:
        while client.get("/health/ready").status_code != 200:
            assert client.get("/health/live").status_code == 200
        assert client.post("/rerank", json={"query": "a bridge", "documents": ["The bridge.", "Bread."]}).status_code == 200
    (started,) = (message for message in caplog.messages if message.startswith("modernbert-cls from "))
    assert "out, on cpu in fp32: auto; " in started
    assert "no openvino: ONNX Runtime" in started
    assert not [record for record in caplog.records if record.levelname == "WARNING"]


def test_fixed_scales_are_for_models_of_our_own(checkpoint: Callable[[str], Path], tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="int8-static is for models of keyblock-train"):
        import_model(str(checkpoint("bert")), tmp_path / "out", replace(FEW, variants=[VariantKind.INT8_STATIC]))
    assert not (tmp_path / "out").exists()
