from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx
import pytest

from export import ExportError
from export import exporter as exporter_module
from export.cli import main
from export.exporter import SAMPLE, Options, export_run
from export.variants import VariantKind, variant_name
from keyblock.bundle import load_bundle
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider, ProviderError, cuda_devices
from training.collection import Collection
from training.model import CrossEncoder

SaveRun = Callable[..., Path]
Tiny = Callable[..., CrossEncoder]
SMALL: dict[str, Any] = {"segmenter": {"name": "cogltx", "block_tokens": 30}, "packing": {"budget": 64, "budget_range": (64, 64)}}
FEW: dict[str, Any] = {"queries": 3, "depth": 3, "provider": Provider.CPU}


def test_a_variant_is_served_where_it_is_asked_for(tmp_path: Path, save_run: SaveRun, tiny: Tiny) -> None:
    """Of a system of three graphs: both encoders are quantised, the aggregator is shared."""
    parts = SMALL | {"selector": {"name": "learned"}, "aggregator": {"name": "states", "passages": 2}}
    run = save_run(tmp_path / "run", tiny(aggregator={"name": "attention"}), chooser=tiny(), **parts)
    bundle = export_run(run, tmp_path / "bundle", Options(variants=[VariantKind.INT8], **FEW))
    assert {"model.int8.onnx", "selector.int8.onnx"} < bundle.manifest.files.keys()
    variant = bundle.manifest.variants["int8"]
    assert (variant.graph.precision, variant.graph.fused["QAttention"]) == ("int8", 2)
    measured = variant.quality
    assert (measured["provider"], measured["precision"]) == ("cpu", "int8")
    assert measured["collections"]["sample"]["logits"]["max"] > 0
    model = GraphModel.open(bundle, "cpu", precision="int8")
    assert model.session.choice.precision == "int8"
    assert model.selector is not None
    assert model.selector.choice.precision == "int8"
    assert GraphModel.open(bundle, "cpu", precision="fp32").session.choice.precision == "fp32"


def test_a_bundle_without_the_variant_says_how_to_get_it(run: Path, tmp_path: Path) -> None:
    bundle = export_run(run, tmp_path / "bundle", Options(**FEW))
    with pytest.raises(ProviderError, match="the bundle has no int8 graphs \\(keyblock-export --variant int8 writes them\\)"):
        GraphModel.open(bundle, "cpu", precision="int8")


@pytest.mark.skipif(cuda_devices() > 0, reason="CUDA is here, so that it is measured")
def test_what_cannot_be_measured_here_is_told(run: Path, tmp_path: Path) -> None:
    bundle = export_run(run, tmp_path / "bundle", Options(variants=[VariantKind.FP16], **FEW))
    variant = bundle.manifest.variants["fp16"]
    assert variant.quality["unmeasured"].startswith("provider cuda was asked for, but ")
    assert variant.graph.fused["PackedAttention"] == 2
    assert variant.graph.file == "model.fp16.onnx"
    GraphModel.open(bundle, "cpu")  # and what it is served with here is the bundle's own


def test_a_bundle_is_written_anew_with_variants(run: Path, tmp_path: Path) -> None:
    """Its weights are read back from its graph: the same graph comes out."""
    first = export_run(run, tmp_path / "first", Options(name="mine", **FEW))
    manifest = first.manifest.model_copy(
        update={"provenance": {"recipe": {"backbone": str(run / "checkpoint")}, "export": {"keyblock": "0"}}}
    )
    (tmp_path / "first" / "bundle.json").write_text(manifest.model_dump_json())
    out = tmp_path / "second"
    arguments = [tmp_path / "first", "--out", out, "--variant", "int8", "--provider", "cpu", "--queries", 2, "--depth", 2]
    assert main([str(argument) for argument in arguments]) == 0
    second = load_bundle(out).manifest
    assert (second.name, list(second.variants)) == ("mine", ["int8"])
    assert second.files["model.onnx"].bytes == first.manifest.files["model.onnx"].bytes
    before, after = (onnx.load(str(tmp_path / name / "model.onnx")).graph for name in ("first", "second"))
    assert [tensor.raw_data for tensor in before.initializer] == [tensor.raw_data for tensor in after.initializer]
    assert second.provenance["recipe"] == manifest.provenance["recipe"]
    assert second.provenance["export"] != {"keyblock": "0"}


def test_a_bundle_that_cannot_be_read_back(tmp_path: Path, run: Path, save_run: SaveRun, tiny: Tiny) -> None:
    wide = save_run(tmp_path / "run", tiny(aggregator={"name": "max"}), **SMALL | {"aggregator": {"name": "states", "passages": 2}})
    export_run(wide, tmp_path / "wide", Options(**FEW))
    with pytest.raises(ExportError, match="a bundle of several graphs cannot be written anew; export the run"):
        export_run(tmp_path / "wide", tmp_path / "again", Options(**FEW))
    export_run(run, tmp_path / "plain", Options(**FEW))
    with pytest.raises(ExportError, match="does not say which backbone it was trained on; export the run"):
        export_run(tmp_path / "plain", tmp_path / "again", Options(**FEW))


def test_a_variant_that_loses_quality_is_an_error(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = exporter_module.compare

    def compare(reference: GraphModel, served: GraphModel, dev: Any) -> dict[str, Any]:
        found = real(reference, served, dev)
        if served.session.choice.precision == "int8":
            found["served"]["nDCG@10"] -= 0.1
        return found

    monkeypatch.setattr(exporter_module, "compare", compare)
    with pytest.raises(ExportError, match=r"nDCG@10 on dev loses .* on cpu in int8 .*without that variant"):
        export_run(run, tmp_path / "bundle", Options(variants=[VariantKind.INT8], collections=[Collection(SAMPLE)], **FEW))


def test_names() -> None:
    assert variant_name("model.onnx", VariantKind.INT8) == "model.int8.onnx"
