import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from starlette.testclient import TestClient
from transformers import AutoModelForSequenceClassification

from export import ExportError
from export.certificate import ALLOWED
from export.importing import import_model, own_name
from export.options import ImportOptions, VariantKind, WeightPrecision
from keyblock.bundle import FORMAT_VERSION, BundleError, load_bundle
from keyblock.fusion import Activation, Fusion
from keyblock.ranker import Ranker
from keyblock.runtime.providers import Precision, Provider, resolve
from service.app import create_app
from service.settings import Settings
from tests.support.checkpoints import BERT, FAMILIES, save_checkpoint, save_tokenizer, wordpiece

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


def counting_checkpoint(folder: Path, word: str) -> Path:
    """A BERT whose logit grows with the share of a sequence's tokens that are this word, and with nothing else."""
    tokenizer = wordpiece(BERT)
    tokenizer.add_tokens([word])
    sizes = {"hidden_size": 4, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 4}
    config = FAMILIES["bert"].config(vocab_size=tokenizer.get_vocab_size(), num_labels=1, **sizes)
    module = AutoModelForSequenceClassification.from_config(config)
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.fill_(1.0 if name.endswith("LayerNorm.weight") else 0.0)
        words = module.bert.embeddings.word_embeddings.weight
        words[:] = torch.tensor([0.0, 0.0, 1.0, -1.0])
        words[tokenizer.token_to_id(word)] = torch.tensor([1.0, -1.0, 0.0, 0.0])
        layer = module.bert.encoder.layer[0].attention
        for dense in (layer.self.value, layer.output.dense, module.bert.pooler.dense):  # queries and keys are 0: all tokens alike
            dense.weight.copy_(torch.eye(4))
        module.classifier.weight[0, 0] = 10.0
    module.save_pretrained(folder)
    save_tokenizer(tokenizer, FAMILIES["bert"], folder)
    return folder


def test_the_right_answer_wins_from_wherever_it_is_buried(tmp_path: Path) -> None:
    """The model counts the word swarm: the document that has a passage full of it wins, and that passage is named."""
    source = counting_checkpoint(tmp_path / "counting", "swarm")
    bundle = import_model(str(source), tmp_path / "bundle", ImportOptions(pairs=16, provider=Provider.CPU, passage_tokens=64))
    filler = "Bread and stone stood by the old bridge. " * 60
    passage = "The swarm saw a swarm. A swarm and a swarm."
    documents = [f"{filler}One swarm. {filler}", f"{filler}{passage} {filler}{filler}", filler]
    settings = Settings(bundle=(bundle.path,), provider=Provider.CPU, precision=Precision.FP32, threads=1, token_cap=512)
    with TestClient(create_app(settings)) as client:
        while client.get("/health/ready").status_code != 200:
            assert client.get("/health/live").status_code == 200
        request = {"query": "bread and swarm", "documents": documents, "return_blocks": True, "raw_scores": True}
        results = client.post("/rerank", json=request).json()["results"]
    assert [result["index"] for result in results] == [1, 0, 2]
    scores = [result["relevance_score"] for result in results]
    assert scores[0] > scores[1] > scores[2]
    best = results[0]["blocks"][0]
    assert passage in documents[1][best["start"] : best["end"]]
    assert best["end"] - best["start"] < 600


def test_an_import_is_quiet_about_where_it_ran(imported: Callable[[str], Path]) -> None:
    manifest = json.loads((imported("bert") / "bundle.json").read_text(encoding="utf-8"))
    assert manifest["format_version"] == FORMAT_VERSION
    assert manifest["quality"]["import"]["provider"] == resolve(Provider.AUTO).provider


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
