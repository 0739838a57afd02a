from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from onnxruntime import get_available_providers as available

from export import ExportError
from export import exporter as exporter_module
from export.exporter import SAMPLE, export_run
from export.options import Options, VariantKind
from export.variants import variant_name
from keyblock.runtime.cpus import vnni_feature
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider, ProviderError, cuda_devices
from training.collections.collection import Collection
from training.models.cross_encoder import CrossEncoder

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


@pytest.mark.skipif(vnni_feature() is None or "OpenVINOExecutionProvider" not in available(), reason="needs VNNI and OpenVINO")
def test_fixed_scales_are_taken_from_what_the_graph_is_to_read(run: Path, tmp_path: Path) -> None:
    """`auto` serves them where the CPU has VNNI, and they say nearly what the bundle's own graph says."""
    bundle = export_run(run, tmp_path / "bundle", Options(variants=[VariantKind.INT8_STATIC], **FEW))
    variant = bundle.manifest.variants["int8-static"]
    assert (variant.graph.file, variant.quality["precision"]) == ("model.int8-static.onnx", "int8-static")
    served = GraphModel.open(bundle)
    assert (served.session.choice.provider, served.session.choice.precision) == ("openvino", "int8-static")
    of_sample = variant.quality["collections"]["sample"]["logits"]
    assert 0 < of_sample["mean"] < 0.3
