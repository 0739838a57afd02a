"""Runs and bundles that keyblock-export writes as bundles: what is written, what is served, and what is refused."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper
from onnxruntime import get_available_providers as available

from export import ExportError, cli, import_cli
from export import exporter as exporter_module
from export.exporter import SAMPLE, export_run
from export.graphs import Graphs
from export.last_attention import CLS_ATTENTION, compute_cls_alone
from export.options import Options, VariantKind, WeightPrecision
from export.trained import load_trained
from keyblock.bundle import AggregatorEntry, Bundle, BundleError, load_bundle, write_bundle
from keyblock.runtime.batching import score_all
from keyblock.runtime.cpus import bf16_feature, vnni_feature
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider, cuda_devices
from keyblock.runtime.session import Session
from tests.export.conftest import assert_ranks_alike
from training.data.collection import Collection
from training.evaluate.scoring import score
from training.model.checkpoints import CheckpointError
from training.model.cross_encoder import CrossEncoder
from training.model.starting import graph_weights

SaveRun = Callable[..., Path]
Tiny = Callable[..., CrossEncoder]
FEW: dict[str, Any] = {"queries": 3, "depth": 3, "provider": Provider.CPU}
SMALL: dict[str, Any] = {"segmenter": {"name": "cogltx", "block_tokens": 30}, "packing": {"budget": 64, "budget_range": (64, 64)}}
BINB = SMALL | {"selector": {"name": "learned"}}
STATES = {"aggregator": {"name": "states", "passages": 3}}


def export(*arguments: object) -> int:
    return cli.main([str(argument) for argument in (*arguments, "--provider", "cpu", "--queries", 2, "--depth", 2)])


@pytest.fixture
def copied(run: Path, tmp_path: Path) -> Path:
    """A run that a test may damage."""
    return Path(shutil.copytree(run, tmp_path / "damaged"))


@pytest.fixture(scope="module")
def system(tmp_path_factory: pytest.TempPathFactory, save_run: SaveRun, tiny: Tiny) -> Bundle:
    """Of three graphs, with a variant. Never write into it."""
    folder = tmp_path_factory.mktemp("system")
    run = save_run(folder / "run", tiny(aggregator={"name": "cnn"}), chooser=tiny(), **BINB | STATES)
    return export_run(run, folder / "bundle", Options(variants=[VariantKind.INT8], **FEW))


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


def test_a_ranker_that_selects_and_combines_states_ranks_as_it_was_trained(tmp_path: Path, save_run: SaveRun, tiny: Tiny) -> None:
    """The final scores of documents, by the fp32 graphs and by PyTorch; of other systems: tests/training/test_round_trip."""
    run = save_run(tmp_path / "run", tiny(aggregator={"name": "attention"}), **BINB | STATES)
    bundle = export_run(run, tmp_path / "bundle", Options(precision=WeightPrecision.FP32, **FEW))
    assert sorted(path.stem for path in bundle.path.glob("*.onnx")) == ["aggregator", "model"], "no selector's"
    assert_ranks_alike(bundle.path, run)


def test_a_model_that_selected_in_training_alone_is_left_out(tmp_path: Path, save_run: SaveRun, tiny: Tiny) -> None:
    assert load_trained(save_run(tmp_path / "run", tiny(), chooser=tiny(), **SMALL)).chooser is None


def test_a_run_that_lost_the_model_that_selects(tmp_path: Path, save_run: SaveRun, tiny: Tiny) -> None:
    """Its ranker could select as well, but that would be another system."""
    run = save_run(tmp_path / "run", tiny(), **BINB)
    (run / "provenance.json").write_text(json.dumps({"recipe": {"selector_run": "runs/first"}}))
    with pytest.raises(ExportError, match=r"run: has no chooser, the model that selects its blocks \(runs/first\); copy the run"):
        load_trained(run)


def test_the_best_model_on_dev_is_exported(tmp_path: Path, save_run: SaveRun, tiny: Tiny) -> None:
    last, best = tiny(), tiny()
    best.head.bias.data += 5
    run = save_run(tmp_path / "run", last, **SMALL)
    best.save(run / "best")
    assert load_trained(run).model.state_dict()["head.bias"] == best.head.bias


def test_weights_averaged_with_another_run(tmp_path: Path, save_run: SaveRun, tiny: Tiny) -> None:
    """A quarter of the run's and three quarters of the other's."""
    ours, theirs = tiny(), tiny()
    for number, model in ((0.01, ours), (-0.05, theirs)):
        for weight in model.parameters():
            weight.data += number
    run, other = save_run(tmp_path / "run", ours, **SMALL), save_run(tmp_path / "other", theirs, **SMALL)
    assert export(run, "--average", other, 0.25, "--precision", "fp32", "--out", tmp_path / "bundle") == 0
    bundle = load_bundle(tmp_path / "bundle")
    stored = graph_weights(onnx.load(str(bundle.graph_path)))
    for name in ("embeddings.word_embeddings.weight", "encoder.layer.0.attention.self.query.weight"):
        one, two = (model.encoder.state_dict()[name] for model in (ours, theirs))
        np.testing.assert_allclose(stored[name], 0.25 * one + 0.75 * two, atol=1e-5)
    assert bundle.manifest.provenance["average"]["share"] == 0.25
    assert bundle.manifest.quality.keys() == {"export"}, "what was measured of the run is not the average's"


def test_what_cannot_be_averaged(
    tmp_path: Path, save_run: SaveRun, tiny: Tiny, run: Path, plain: Bundle, capsys: pytest.CaptureFixture[str]
) -> None:
    for share in ("half", "0", "1", "nan"):
        assert export(run, "--average", run, share, "--out", tmp_path / "bundle") == 2
        assert f"{share} is no share of the run; give a number above 0 and below 1" in capsys.readouterr().err
    smaller = save_run(tmp_path / "smaller", tiny(intermediate_size=48), **SMALL)
    heads = save_run(tmp_path / "heads", tiny(num_attention_heads=4), **SMALL)
    for other, problem in (
        (smaller, "smaller: its model is of another architecture than the run's"),
        (heads, "heads: its model is of another architecture than the run's"),
        (plain.path, "does not say which backbone it was trained on"),
        (f"{smaller}@0123456789", "holds other weights"),
        (tmp_path / "none", "none: has no"),
    ):
        assert export(run, "--average", other, 0.5, "--out", tmp_path / "bundle") == 2
        assert problem in capsys.readouterr().err


def test_half_weights_of_every_graph(system: Bundle) -> None:
    assert system.manifest.aggregator == AggregatorEntry(precision="fp16-weights", hidden=32, kind={"name": "cnn", "layers": 4})
    assert system.manifest.selector_graph is not None
    assert (system.manifest.selector_graph.output, system.manifest.graph.output) == ("logits", "outputs")
    stored = onnx.load(str(system.aggregator_path)).graph.initializer
    assert {tensor.data_type for tensor in stored if len(tensor.dims) > 1} == {TensorProto.FLOAT16}
    measured = system.manifest.quality["export"]
    assert measured["parity"]["max"] <= 1e-3
    assert 0 < measured["collections"]["sample"]["logits"]["max"] < 0.05


def test_a_variant_is_served_if_requested(system: Bundle) -> None:
    """Both encoders are quantised, the aggregator is shared."""
    assert {"model.int8.onnx", "selector.int8.onnx"} < system.manifest.files.keys()
    variant = system.manifest.variants["int8"]
    assert (variant.graph.precision, variant.graph.fused["QAttention"]) == ("int8", 2)
    measured = variant.quality
    assert (measured["provider"], measured["precision"]) == ("cpu", "int8")
    assert measured["collections"]["sample"]["logits"]["max"] > 0
    model = GraphModel.open(system, "cpu", precision="int8")
    assert model.session.choice.precision == "int8"
    assert model.selector is not None
    assert model.selector.choice.precision == "int8"
    assert GraphModel.open(system, "cpu", precision="fp32").session.choice.precision == "fp32"


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


@pytest.fixture(scope="module")
def fixed(tmp_path_factory: pytest.TempPathFactory, save_run: SaveRun, tiny: Tiny) -> Bundle:
    """Ranker and selector with fixed scales beside them."""
    folder = tmp_path_factory.mktemp("fixed")
    run = save_run(folder / "run", tiny(), chooser=tiny(), **BINB | {"aggregator": {"name": "max"}})
    return export_run(run, folder / "bundle", Options(variants=[VariantKind.INT8_STATIC], **FEW))


@pytest.mark.skipif(vnni_feature() is None or "OpenVINOExecutionProvider" not in available(), reason="needs VNNI and OpenVINO")
def test_fixed_scales_are_taken_from_what_the_graph_is_to_read(fixed: Bundle) -> None:
    """`auto` serves them where the CPU has VNNI and no AMX; they say nearly what the bundle's graph says."""
    variant = fixed.manifest.variants["int8-static"]
    assert (variant.graph.file, variant.quality["precision"]) == ("model.int8-static.onnx", "int8-static")
    choice = GraphModel.open(fixed).session.choice
    fastest = "bf16" if bf16_feature() == "amx_bf16" else "int8-static"
    assert (choice.provider, choice.precision) == ("openvino", fastest)
    of_sample = variant.quality["collections"]["sample"]["logits"]
    assert 0 < of_sample["mean"] < 0.3


def test_fixed_scales_stand_beside_the_weights_that_they_leave_alone(fixed: Bundle, tmp_path: Path) -> None:
    """Ranker and selector read embeddings in the graphs that the bundle serves; what they say is what whole graphs say."""
    random = np.random.default_rng(0)
    given = random.integers(5, 200, (4, 20)), random.integers(0, 2, (4, 20)), np.ones((4, 20), np.int64)
    for files in fixed.encoder_files("int8-static"):
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


def test_a_bundle_is_written_anew_with_a_variant_and_keeps_its_own_graph(run: Path, plain: Bundle, tmp_path: Path) -> None:
    """Its weights are read back, and the same graph comes out, though another version of PyTorch called its values otherwise."""
    graph = onnx.load(str(plain.graph_path))
    for node in graph.graph.node:
        for names in (node.input, node.output):
            names[:] = [f"{name}_1" if name.startswith("onnx::") else name for name in names]
    for tensor in graph.graph.initializer:
        tensor.name = f"{tensor.name}_1" if tensor.name.startswith("onnx::") else tensor.name
    onnx.save(graph, str(tmp_path / "model.onnx"))
    files = {name: plain.path / name for name in plain.manifest.files} | {"model.onnx": tmp_path / "model.onnx"}
    about = {"recipe": {"backbone": str(run / "checkpoint")}, "export": {"keyblock": "0"}}
    first = write_bundle(tmp_path / "first", plain.manifest.model_copy(update={"name": "mine", "provenance": about}), files)
    assert first.graph_path.read_bytes() != plain.graph_path.read_bytes()
    assert export(first.path, "--out", tmp_path / "second", "--variant", "int8") == 0
    second = load_bundle(tmp_path / "second")
    assert (second.manifest.name, list(second.manifest.variants)) == ("mine", ["int8"])
    assert second.graph_path.read_bytes() == first.graph_path.read_bytes()
    assert second.manifest.provenance["recipe"] == about["recipe"]
    assert second.manifest.provenance["export"] != {"keyblock": "0"}
    assert second.manifest.quality.keys() == first.manifest.quality.keys() > {"export"}


def test_a_graph_that_would_compute_otherwise_is_not_kept(plain: Bundle, tmp_path: Path) -> None:
    graph = onnx.load(str(plain.graph_path))
    for attribute in (attribute for node in graph.graph.node for attribute in node.attribute if attribute.name == "epsilon"):
        attribute.f = 0.5
    onnx.save(graph, str(tmp_path / "model.onnx"))
    made = Path(shutil.copytree(plain.path, tmp_path / "made"))
    Graphs(made).reusing_files(tmp_path)
    assert (made / "model.onnx").read_bytes() == plain.graph_path.read_bytes()


def test_a_bundle_that_cannot_be_read_back(plain: Bundle, system: Bundle, tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="a bundle of several graphs cannot be written anew; export the run"):
        load_trained(system.path)
    with pytest.raises(ExportError, match="does not say which backbone it was trained on; export the run"):
        load_trained(plain.path)
    shutil.copytree(plain.path, tmp_path / "plain")
    manifest = tmp_path / "plain" / "bundle.json"
    manifest.write_text(json.dumps(json.loads(manifest.read_text()) | {"provenance": {"recipe": "by hand"}}))
    with pytest.raises(ExportError, match="does not say which backbone"):
        load_trained(tmp_path / "plain")


@pytest.mark.parametrize(
    ("model", "parts", "problem"),
    [
        ({}, SMALL | STATES, "aggregator is 'states', but its model has no aggregator; train it"),
        ({"aggregator": {"name": "max"}}, SMALL, "is 'joint', but its model has an aggregator; train it again"),
        ({"max_position_embeddings": 200}, {}, "go to 256 tokens, padded to 256, but the encoder has 200 positions"),
    ],
)
def test_a_model_and_a_pipeline_that_do_not_belong_together(
    tmp_path: Path, save_run: SaveRun, tiny: Tiny, model: dict[str, Any], parts: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ExportError, match=problem):
        load_trained(save_run(tmp_path / "run", tiny(**model), **parts))


PARTS = ("pipeline.json", "tokenizer.json", "frequencies.tsv")


@pytest.mark.parametrize("name", [*PARTS, "checkpoint"])
def test_an_incomplete_run(copied: Path, name: str) -> None:
    (copied / name).rename(copied / "elsewhere")
    with pytest.raises((ExportError, CheckpointError), match=f"damaged: has no {name}; (give a|keyblock-train writes)"):
        load_trained(copied)


@pytest.mark.parametrize(
    "name", [*PARTS, "checkpoint/config.json", "checkpoint/head.safetensors", "quality.json", "provenance.json"]
)
def test_a_damaged_run(copied: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    (copied / name).write_text("[]")
    problem = rf"{name}: .*; restore or delete it" if name in ("quality.json", "provenance.json") else "damaged: cannot be read"
    assert export(copied, "--out", tmp_path / "bundle") == 2
    assert re.fullmatch(rf"keyblock-export: .*{problem}.*\n", capsys.readouterr().err)


def test_what_is_served_is_what_is_held_to_pytorch(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def damage(graph: ModelProto) -> None:
        compute_cls_alone(graph)
        (scale,) = [tensor for tensor in graph.graph.initializer if tensor.name == f"{CLS_ATTENTION}/scale"]
        scale.CopyFrom(numpy_helper.from_array(5 * numpy_helper.to_array(scale), scale.name))

    monkeypatch.setattr("export.last_attention.compute_cls_alone", damage)
    with pytest.raises(ExportError, match="PyTorch"):
        export_run(run, tmp_path / "bundle", Options(provider=Provider.CPU))
    assert not (tmp_path / "bundle").exists()


def test_a_taken_place_is_refused_before_the_work(run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("export.exporter.export_graphs")
    (tmp_path / "bundle").mkdir()
    (tmp_path / "bundle" / "mine").write_text("")
    with pytest.raises(BundleError, match="is not empty"):
        export_run(run, tmp_path / "bundle", Options(**FEW))
    assert [path.name for path in (tmp_path / "bundle").iterdir()] == ["mine"]


def test_a_run_without_measurements_is_exported_in_fp32_and_summed_up(
    copied: Path, plain: Bundle, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In place of an older bundle."""
    out = Path(shutil.copytree(plain.path, tmp_path / "bundle"))
    (copied / "quality.json").unlink()
    assert export(copied, "--out", out, "--name", "whole", "--precision", "fp32", "--overwrite") == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"{out}: ")
    assert "'Attention': 1" in printed
    manifest = load_bundle(out).manifest
    assert (manifest.name, manifest.graph.precision, list(manifest.quality)) == ("whole", "fp32", ["export"])
    measured = manifest.quality["export"]
    assert json.loads(printed[printed.index("\n") :]) == measured
    assert measured["collections"]["sample"]["logits"]["max"] < 1e-5
    assert "nDCG@10 lost" not in measured, "the sample is too small to judge a ranking"


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (["{tmp}/none", "--out", "{tmp}/bundle"], "none: has no pipeline.json"),
        (["{run}", "--out", "{run}"], "is not empty"),
        (["{run}", "--out", "{tmp}/bundle", "--collection", "{tmp}/none"], "no such collection directory"),
        (["{run}", "--out", "{tmp}/bundle", "--collection", "{tmp}"], "has no splits/dev.txt"),
    ],
)
def test_errors_that_a_person_can_mend_are_one_line(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], expected: str
) -> None:
    assert export(*(argument.format(tmp=tmp_path, run=run) for argument in arguments)) == 2
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("keyblock-export: ")
    assert expected in said[0]


def test_an_export_halves_the_weights_and_an_import_keeps_them() -> None:
    for parser, given, precision in ((cli.parser(), "run", "fp16-weights"), (import_cli.parser(), "model", "fp32")):
        options = parser.parse_args([given, "--out", "bundle"])
        assert options.precision == precision
        assert (options.provider, options.variant, options.overwrite) == (Provider.AUTO, [], False)
