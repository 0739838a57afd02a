from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto
from onnxruntime import get_available_providers as available

from export import ExportError
from export import exporter as exporter_module
from export.exporter import SAMPLE, export_run
from export.options import Options, VariantKind
from keyblock.bundle import Bundle, write_bundle
from keyblock.runtime.cpus import bf16_feature, vnni_feature
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider, ProviderError, cuda_devices
from keyblock.runtime.session import Session
from training.data.collection import Collection
from training.model.cross_encoder import CrossEncoder

SaveRun = Callable[..., Path]
Tiny = Callable[..., CrossEncoder]
SMALL: dict[str, Any] = {"segmenter": {"name": "cogltx", "block_tokens": 30}, "packing": {"budget": 64, "budget_range": (64, 64)}}
FEW: dict[str, Any] = {"queries": 3, "depth": 3, "provider": Provider.CPU}


def test_a_variant_is_served_if_requested(tmp_path: Path, save_run: SaveRun, tiny: Tiny) -> None:
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


def test_a_bundle_without_the_variant_says_how_to_get_it(plain: Bundle) -> None:
    with pytest.raises(ProviderError, match="the bundle has no int8 graphs \\(keyblock-export --variant int8 writes them\\)"):
        GraphModel.open(plain, "cpu", precision="int8")


@pytest.mark.skipif(cuda_devices() > 0, reason="CUDA is here, so that it is measured")
def test_a_variant_that_cannot_be_measured_here_is_reported(run: Path, tmp_path: Path) -> None:
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


@pytest.mark.skipif(vnni_feature() is None or "OpenVINOExecutionProvider" not in available(), reason="needs VNNI and OpenVINO")
def test_fixed_scales_are_taken_from_what_the_graph_is_to_read(run: Path, tmp_path: Path) -> None:
    """`auto` serves them where the CPU has VNNI and no AMX; they say nearly what the bundle's graph says."""
    bundle = export_run(run, tmp_path / "bundle", Options(variants=[VariantKind.INT8_STATIC], **FEW))
    variant = bundle.manifest.variants["int8-static"]
    assert (variant.graph.file, variant.quality["precision"]) == ("model.int8-static.onnx", "int8-static")
    served = GraphModel.open(bundle)
    fastest = "bf16" if bf16_feature() == "amx_bf16" else "int8-static"
    assert (served.session.choice.provider, served.session.choice.precision) == ("openvino", fastest)
    of_sample = variant.quality["collections"]["sample"]["logits"]
    assert 0 < of_sample["mean"] < 0.3


def test_fixed_scales_stand_beside_the_weights_that_they_leave_alone(tmp_path: Path, save_run: SaveRun, tiny: Tiny) -> None:
    """Ranker and selector read embeddings in the graphs that the bundle serves; what they say is what whole graphs say."""
    parts = SMALL | {"selector": {"name": "learned"}, "aggregator": {"name": "max"}}
    run = save_run(tmp_path / "run", tiny(), chooser=tiny(), **parts)
    bundle = export_run(run, tmp_path / "bundle", Options(variants=[VariantKind.INT8_STATIC], **FEW))
    random = np.random.default_rng(0)
    given = random.integers(5, 200, (4, 20)), random.integers(0, 2, (4, 20)), np.ones((4, 20), np.int64)
    for files in bundle.encoder_files("int8-static"):
        assert files is not None
        assert files.shared == files.graph.with_name(files.graph.name.replace(".int8-static", ""))
        graph = onnx.load(str(files.graph))  # with all that it reads elsewhere
        tables = [t for t in graph.graph.initializer if "word_embeddings" in t.name]
        assert len(tables[0].raw_data) > files.graph.stat().st_size, "the file does not repeat them"
        (whole := tmp_path / "whole.onnx").write_bytes(without_places(graph).SerializeToString())
        expected = Session(whole, "cpu", 1, "fp32").score(*given)
        found = Session(files.graph, "cpu", 1, "fp32", shared=files.shared).score(*given)
        np.testing.assert_array_equal(found, expected)


def without_places(model: ModelProto) -> ModelProto:
    for tensor in model.graph.initializer:
        tensor.ClearField("external_data")
        tensor.data_location = TensorProto.DEFAULT
    return model


def test_a_bundle_that_gets_a_variant_keeps_its_own_graph(run: Path, plain: Bundle, tmp_path: Path) -> None:
    """Its values are called otherwise, as another version of PyTorch would call them; and what would compute otherwise goes."""
    about = {"provenance": {"recipe": {"backbone": str(run / "checkpoint")}}}
    for epsilon, kept in ((None, True), (0.5, False)):
        graph = onnx.load(str(plain.graph_path))
        for node in graph.graph.node:
            for names in (node.input, node.output):
                renamed = [f"{name}_1" if name.startswith("onnx::") else name for name in names]
                del names[:]
                names.extend(renamed)
            for attribute in node.attribute:
                if attribute.name == "epsilon" and epsilon:
                    attribute.f = epsilon
        for tensor in graph.graph.initializer:
            tensor.name = f"{tensor.name}_1" if tensor.name.startswith("onnx::") else tensor.name
        onnx.save(graph, str(tmp_path / "model.onnx"))
        files = {name: plain.path / name for name in plain.manifest.files} | {"model.onnx": tmp_path / "model.onnx"}
        changed = write_bundle(tmp_path / f"changed-{kept}", plain.manifest.model_copy(update=about), files)
        again = export_run(changed.path, tmp_path / f"again-{kept}", Options(**FEW))
        assert (again.graph_path.read_bytes() == changed.graph_path.read_bytes()) is kept
