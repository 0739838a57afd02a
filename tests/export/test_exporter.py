import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from export import ExportError
from export.exporter import SAMPLE, Options, export_run
from export.precision import WeightPrecision
from keyblock.bundle import BundleError, load_bundle
from keyblock.runtime.batching import score_all
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import Session
from training.collection import Collection
from training.model import CrossEncoder
from training.scoring import score

SaveRun = Callable[[Path, CrossEncoder], Path]
FEW = {"queries": 3, "depth": 3}


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    """A run that a test may damage."""
    return Path(shutil.copytree(run, tmp_path / "damaged"))


def test_a_run_becomes_a_bundle_that_scores_alike(run: Path, tmp_path: Path) -> None:
    export_run(run, tmp_path / "bundle", Options(collections=[Collection(SAMPLE)], provider=Provider.CPU, **FEW))
    bundle = load_bundle(tmp_path / "bundle")
    assert (bundle.manifest.name, bundle.manifest.graph.precision) == ("tiny", "fp16-weights")
    assert bundle.manifest.graph.fused["Attention"] == 2
    assert bundle.manifest.provenance["recipe"] == {"seed": 7}
    assert {"torch", "onnxruntime", "keyblock"} <= bundle.manifest.provenance["export"].keys()
    assert bundle.manifest.quality["dev"]["any"]["128"]["nDCG@10"] == 0.5
    pipeline = bundle.pipeline
    document = pipeline.prepare_document("The river rose. " * 30 + "The bridge fell into the flood, year after year.")
    packed = [pipeline.select(pipeline.prepare_query(q), document).packed for q in ("why did the bridge fall", "river", "")]
    served = score_all(Session(bundle.graph_path, "cpu"), packed, bundle.tokenizer.pad_id)
    trained = score(CrossEncoder.load(run / "checkpoint"), packed, bundle.tokenizer.pad_id, bf16=False)
    np.testing.assert_allclose(served, trained, atol=0.05)


def test_what_was_measured_is_in_the_bundle(run: Path, tmp_path: Path) -> None:
    options = Options(collections=[Collection(SAMPLE)], provider=Provider.CPU, **FEW)
    measured = export_run(run, tmp_path / "bundle", options).manifest.quality["export"]
    assert (measured["provider"], measured["precision"]) == ("cpu", "f32")
    assert measured["parity"]["max"] <= 1e-3
    assert measured["nDCG@10 lost"] <= 0.002
    found = measured["collections"]["sample"]
    assert found["queries"] == 3
    assert 0 < found["logits"]["max"] < 0.05


def test_fp32_weights_on_request(run: Path, tmp_path: Path) -> None:
    options = Options(precision=WeightPrecision.FP32, provider=Provider.CPU, name="whole", **FEW)
    bundle = export_run(run, tmp_path / "bundle", options)
    assert (bundle.manifest.name, bundle.manifest.graph.precision) == ("whole", "fp32")
    measured = bundle.manifest.quality["export"]
    assert measured["collections"]["sample"]["logits"]["max"] == 0
    assert "nDCG@10 lost" not in measured, "the sample is too small to judge a ranking"


@pytest.mark.parametrize("name", ["pipeline.json", "tokenizer.json", "frequencies.tsv", "checkpoint"])
def test_an_incomplete_run(copied: Path, tmp_path: Path, name: str) -> None:
    path = copied / name
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    with pytest.raises(ExportError, match=rf"damaged: has no {name}; give a run directory"):
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


def test_a_run_without_measurements_can_be_exported(copied: Path, tmp_path: Path) -> None:
    (copied / "quality.json").unlink()
    bundle = export_run(copied, tmp_path / "bundle", Options(provider=Provider.CPU, **FEW))
    assert list(bundle.manifest.quality) == ["export"]


def test_budgets_beyond_the_positions(tmp_path: Path, save_run: SaveRun, tiny: Callable[..., CrossEncoder]) -> None:
    run = save_run(tmp_path / "short", tiny(max_position_embeddings=200))
    with pytest.raises(ExportError, match="go to 256 tokens, padded to 256, but the encoder has 200 positions"):
        export_run(run, tmp_path / "bundle", Options())


def test_a_taken_place_is_kept(run: Path, tmp_path: Path) -> None:
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "mine").write_text("")
    with pytest.raises(BundleError, match="is not empty"):
        export_run(run, tmp_path / "bundle", Options(provider=Provider.CPU, **FEW))
    assert [path.name for path in (tmp_path / "bundle").iterdir()] == ["mine"]


def test_the_real_backbone_fuses_and_stays_small(tmp_path: Path, backbone: Path, save_run: SaveRun) -> None:
    run = save_run(tmp_path / "minilm", CrossEncoder.from_backbone(str(backbone)))
    pipeline = json.loads((run / "pipeline.json").read_text())
    pipeline["packing"] |= {"budget": 64, "budget_range": [64, 64]}
    (run / "pipeline.json").write_text(json.dumps(pipeline))
    bundle = export_run(run, tmp_path / "bundle", Options(**FEW))
    assert bundle.manifest.graph.fused == {
        "EmbedLayerNormalization": 1,
        "Attention": 6,
        "SkipLayerNormalization": 12,
        "BiasGelu": 6,
    }
    assert sum(path.stat().st_size for path in bundle.path.iterdir()) < 50e6
    assert bundle.manifest.quality["export"]["parity"]["max"] < 1e-3
