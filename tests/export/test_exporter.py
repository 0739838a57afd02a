import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from export import ExportError
from export.exporter import SAMPLE, export_run
from export.last_attention import CLS_ATTENTION, compute_cls_alone
from export.options import Options, WeightPrecision
from keyblock.bundle import AggregatorEntry, Bundle, BundleError
from keyblock.runtime.batching import score_all
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import Session
from training.data.collection import Collection
from training.evaluate.ranking import bundle_ranker, run_ranker
from training.evaluate.scoring import score
from training.model.cross_encoder import CrossEncoder

SaveRun = Callable[..., Path]
Tiny = Callable[..., CrossEncoder]
FEW = {"queries": 3, "depth": 3}
SMALL = {"segmenter": {"name": "cogltx", "block_tokens": 30}, "packing": {"budget": 64, "budget_range": (64, 128)}}
BINB = {"name": "learned"}
PARADE = {"aggregator": {"name": "states", "passages": 3}}
SYSTEMS: dict[str, tuple[dict[str, Any], dict[str, Any] | None]] = {  # parts of the pipeline, and the learned aggregator
    "MaxP": ({"selector": {"name": "first"}, "aggregator": {"name": "max"}}, None),
    "KeyB(PARADE3)_BinB": (PARADE | {"selector": BINB}, {"name": "attention"}),
}


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    """A run that a test may damage."""
    return Path(shutil.copytree(run, tmp_path / "damaged"))


def test_a_run_becomes_a_bundle_that_scores_alike(run: Path, plain: Bundle) -> None:
    bundle = plain
    assert (bundle.manifest.name, bundle.manifest.graph.precision) == ("tiny", "fp16-weights")
    assert bundle.manifest.graph.fused["Attention"] == 1  # the last layer's is computed for [CLS] alone
    assert bundle.manifest.provenance["recipe"] == {"seed": 7}
    assert {"torch", "onnxruntime", "keyblock"} <= bundle.manifest.provenance["export"].keys()
    assert bundle.manifest.quality["dev"]["any"]["128"]["nDCG@10"] == 0.5
    measured = bundle.manifest.quality["export"]
    assert (measured["provider"], measured["precision"]) == ("cpu", "fp32")
    assert measured["parity"]["max"] <= 1e-3
    assert measured["nDCG@10 lost"] <= 0.002
    found = measured["collections"]["sample"]
    assert found["queries"] == 3
    assert 0 < found["logits"]["max"] < 0.05
    pipeline = bundle.pipeline
    document = pipeline.prepare_document("The river rose. " * 30 + "The bridge fell into the flood, year after year.")
    packed = [pipeline.select(pipeline.prepare_query(q), document).packed for q in ("why did the bridge fall", "river", "")]
    served = score_all(Session(bundle.graph_path, "cpu"), packed, bundle.tokenizer.pad_id)
    trained = score(CrossEncoder.load(run / "checkpoint"), packed, bundle.tokenizer.pad_id, bf16=False)
    np.testing.assert_allclose(served, trained, atol=0.05)


@pytest.mark.parametrize("system", SYSTEMS)
def test_each_system_ranks_as_it_was_trained(tmp_path: Path, save_run: SaveRun, tiny: Tiny, system: str) -> None:
    """The final scores of documents, by the fp32 graphs and by PyTorch; of other systems: tests/training/test_round_trip."""
    parts, aggregator = SYSTEMS[system]
    run = save_run(tmp_path / "run", tiny(aggregator=aggregator), **SMALL | parts)
    assert_alike(run, export_run(run, tmp_path / "bundle", Options(precision=WeightPrecision.FP32, provider=Provider.CPU, **FEW)))


def assert_alike(run: Path, bundle: Bundle) -> None:
    sample = Collection(SAMPLE)
    served = bundle_ranker(bundle, GraphModel.open(bundle, Provider.CPU), sample)
    trained = run_ranker(run, sample, bf16=False)
    for query in list(sample.queries)[:2]:
        found, expected = (ranker.rerank(query, list(sample.documents)) for ranker in (served, trained))
        assert found.blocks == expected.blocks
        for document, score_of in expected.scores.items():
            assert found.scores[document] == pytest.approx(score_of, abs=1e-3)
    assert len({round(score_of, 2) for score_of in expected.scores.values()}) > 2


def test_a_second_model_that_selects_is_a_graph_of_its_own(tmp_path: Path, save_run: SaveRun, tiny: Tiny) -> None:
    """BinB2; the chooser prefers what the ranker would not."""
    chooser = tiny()
    chooser.head.weight.data *= -1
    model = tiny(aggregator={"name": "transformer", "heads": 4})
    run = save_run(tmp_path / "run", model, chooser=chooser, **SMALL | PARADE | {"selector": BINB})
    bundle = export_run(run, tmp_path / "bundle", Options(precision=WeightPrecision.FP32, provider=Provider.CPU, **FEW))
    assert sorted(bundle.manifest.files) == ["aggregator.onnx", "frequencies.tsv", "model.onnx", "selector.onnx", "tokenizer.json"]
    assert bundle.manifest.selector_graph is not None
    assert (bundle.manifest.selector_graph.output, bundle.manifest.graph.output) == ("logits", "outputs")
    assert_alike(run, bundle)


def test_a_model_that_selected_in_training_alone_is_left_out(tmp_path: Path, save_run: SaveRun, tiny: Tiny) -> None:
    run = save_run(tmp_path / "run", tiny(), chooser=tiny(), **SMALL)
    bundle = export_run(run, tmp_path / "bundle", Options(precision=WeightPrecision.FP32, provider=Provider.CPU, **FEW))
    assert bundle.manifest.selector_graph is None
    assert "selector.onnx" not in bundle.manifest.files


def test_a_run_that_lost_the_model_that_selects(tmp_path: Path, save_run: SaveRun, tiny: Tiny) -> None:
    """Its ranker could select as well, but that would be another system."""
    run = save_run(tmp_path / "run", tiny(), **SMALL | {"selector": BINB})
    (run / "provenance.json").write_text(json.dumps({"recipe": {"selector_run": "runs/first"}}))
    with pytest.raises(ExportError, match=r"run: has no chooser, the model that selects its blocks \(runs/first\); copy the run"):
        export_run(run, tmp_path / "bundle", Options(provider=Provider.CPU, **FEW))


def test_half_weights_of_every_graph(tmp_path: Path, save_run: SaveRun, tiny: Tiny) -> None:
    run = save_run(tmp_path / "run", tiny(aggregator={"name": "cnn"}), **SMALL | PARADE)
    options = Options(collections=[Collection(SAMPLE)], provider=Provider.CPU, **FEW)
    bundle = export_run(run, tmp_path / "bundle", options)
    assert bundle.manifest.aggregator == AggregatorEntry(precision="fp16-weights", hidden=32, kind={"name": "cnn", "layers": 4})
    stored = onnx.load(str(bundle.aggregator_path)).graph.initializer
    assert {tensor.data_type for tensor in stored if len(tensor.dims) > 1} == {onnx.TensorProto.FLOAT16}
    measured = bundle.manifest.quality["export"]
    assert measured["parity"]["max"] <= 1e-3
    assert 0 < measured["collections"]["sample"]["logits"]["max"] < 0.05


def test_the_best_model_on_dev_is_exported(tmp_path: Path, save_run: SaveRun, tiny: Tiny) -> None:
    last, best = tiny(), tiny()
    best.head.bias.data += 5
    run = save_run(tmp_path / "run", last, **SMALL)
    best.save(run / "best")
    assert_alike(run, export_run(run, tmp_path / "bundle", Options(precision=WeightPrecision.FP32, provider=Provider.CPU, **FEW)))


def test_what_is_served_is_what_is_held_to_pytorch(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damage(graph: onnx.ModelProto) -> None:
        compute_cls_alone(graph)
        (scale,) = [tensor for tensor in graph.graph.initializer if tensor.name == f"{CLS_ATTENTION}/scale"]
        scale.CopyFrom(numpy_helper.from_array(5 * numpy_helper.to_array(scale), scale.name))

    monkeypatch.setattr("export.last_attention.compute_cls_alone", damage)
    with pytest.raises(ExportError, match="PyTorch"):
        export_run(run, tmp_path / "bundle", Options(provider=Provider.CPU))
    assert not (tmp_path / "bundle").exists()


def test_fp32_weights_on_request_of_a_run_without_measurements(copied: Path, tmp_path: Path) -> None:
    (copied / "quality.json").unlink()
    options = Options(precision=WeightPrecision.FP32, provider=Provider.CPU, name="whole", **FEW)
    bundle = export_run(copied, tmp_path / "bundle", options)
    assert (bundle.manifest.name, bundle.manifest.graph.precision) == ("whole", "fp32")
    assert list(bundle.manifest.quality) == ["export"]
    measured = bundle.manifest.quality["export"]
    assert measured["collections"]["sample"]["logits"]["max"] < 1e-5
    assert "nDCG@10 lost" not in measured, "the sample is too small to judge a ranking"


@pytest.mark.parametrize("name", ["pipeline.json", "tokenizer.json", "frequencies.tsv", "checkpoint"])
def test_an_incomplete_run(copied: Path, tmp_path: Path, name: str) -> None:
    path = copied / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(ExportError, match=rf"damaged: has no {name}; (give a run directory|keyblock-train writes)"):
        export_run(copied, tmp_path / "bundle", Options())


@pytest.mark.parametrize(
    "name", ["pipeline.json", "tokenizer.json", "frequencies.tsv", "checkpoint/config.json", "checkpoint/head.safetensors"]
)
def test_a_damaged_run(copied: Path, tmp_path: Path, name: str) -> None:
    (copied / name).write_text("damaged")
    with pytest.raises(ExportError, match=r"damaged: cannot be read") as caught:
        export_run(copied, tmp_path / "bundle", Options())
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(("name", "content"), [("quality.json", "{"), ("provenance.json", "[]")])
def test_damaged_notes_of_a_run(copied: Path, tmp_path: Path, name: str, content: str) -> None:
    (copied / name).write_text(content)
    with pytest.raises(ExportError, match=rf"{name}: .*; restore or delete it"):
        export_run(copied, tmp_path / "bundle", Options(provider=Provider.CPU, **FEW))
    assert not (tmp_path / "bundle").exists()


def test_budgets_beyond_the_positions(tmp_path: Path, save_run: SaveRun, tiny: Callable[..., CrossEncoder]) -> None:
    run = save_run(tmp_path / "short", tiny(max_position_embeddings=200))
    with pytest.raises(ExportError, match="go to 256 tokens, padded to 256, but the encoder has 200 positions"):
        export_run(run, tmp_path / "bundle", Options())


def test_a_taken_place_is_refused_before_the_work(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("export.exporter.export_graphs")
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "mine").write_text("")
    with pytest.raises(BundleError, match="is not empty"):
        export_run(run, tmp_path / "bundle", Options(provider=Provider.CPU, **FEW))
    assert [path.name for path in (tmp_path / "bundle").iterdir()] == ["mine"]
