"""Graphs of models beside PyTorch; those of every imported family are held to transformers in test_families_served."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import onnx
import pytest
import torch
from onnx import helper
from transformers import AutoConfig, AutoModel

from export import ExportError
from export.families import add_marks, export_aggregator, export_classifier, export_cross_encoder, export_ranker
from export.graph import fused_nodes
from export.graphs import export_graphs
from export.importing import measured_pace
from export.last_attention import CLS_POSITION, compute_cls_alone, narrow_last_layer
from export.options import WeightPrecision
from export.variants import halve_weights, quantize_static, unpad
from keyblock.bundle import Bundle
from keyblock.packing import Packed
from keyblock.runtime.aggregator import AggregatorSession
from keyblock.runtime.batching import mark_all, score_all
from keyblock.runtime.model import GraphModel
from keyblock.runtime.providers import Provider
from keyblock.runtime.session import Session
from keyblock.text.tokenizer import Tokenizer
from tests.export.conftest import batch
from training.declarations import CrossEncoderFamily
from training.evaluate.scoring import TorchModel
from training.model.classifier import Classifier
from training.model.cross_encoder import CrossEncoder, Marker
from training.model.starting import POOLING, graph_weights

FUSED = {"EmbedLayerNormalization": 1, "Attention": 2, "SkipLayerNormalization": 4, "BiasGelu": 2}
Tiny = Callable[..., CrossEncoder]


def assert_equal_pytorch(session: Session, model: CrossEncoder, *shapes: tuple[int, int]) -> None:
    """The graph's outputs for batches of these shapes are the model's."""
    for shape in shapes:
        ids, types, mask = batch(*shape, vocabulary=model.vocabulary_size)
        ids = np.where(mask, ids, model.transformer.config.pad_token_id)
        given = ids, types * model.typed, mask
        with torch.inference_mode():
            expected = model.outputs(*map(torch.from_numpy, given)).numpy()
        np.testing.assert_allclose(session.score(*given), expected, atol=1e-4)


@pytest.mark.parametrize(("rows", "length"), [(1, 1), (1, 32), (3, 17), (5, 128), (2, 512)])
def test_batch_and_length_are_free_and_logits_are_pytorchs(model: CrossEncoder, fp32: Path, rows: int, length: int) -> None:
    assert_equal_pytorch(Session(fp32, "cpu", threads=1), model, (rows, length))


def test_a_model_with_an_aggregator_gives_states_beside_logits(tmp_path: Path, tiny: Tiny) -> None:
    """Its dropout is neither exported nor left on."""
    model = tiny({"name": "attention"}, hidden_dropout_prob=0.5, attn_implementation="eager").train()
    export_cross_encoder(model, tmp_path / "fp32.onnx")
    assert not any(module.training for module in model.modules())
    graph = onnx.load(str(tmp_path / "fp32.onnx"))
    assert fused_nodes(graph) == FUSED
    assert [given.name for given in graph.graph.output] == ["outputs"]
    assert sum(CLS_POSITION in node.input for node in graph.graph.node) == 2, "the last layer computes [CLS] alone"
    session = Session(tmp_path / "fp32.onnx", "cpu", threads=1)
    assert session.width == 33
    assert_equal_pytorch(session, model, (1, 1), (3, 17), (2, 128))


def test_another_pooling_is_pytorchs_too(tmp_path: Path, tiny: Tiny) -> None:
    """No layer is narrowed to [CLS], nor its attention: all tokens' states are read. The graph says how, and holds the weights."""
    cls = tiny({"name": "attention"}, attn_implementation="eager")
    model = CrossEncoder(cls.encoder, cls.aggregator, settings=CrossEncoderFamily(pooling="last")).eval()
    model.load_state_dict(cls.state_dict())
    export_graphs(tmp_path / "exact", model).served(tmp_path / "served", WeightPrecision.FP32)
    session = Session(tmp_path / "served" / "model.onnx", "cpu", threads=1)
    assert_equal_pytorch(session, model, (1, 1), (3, 40), (2, 300))
    given = batch(3, 40)
    wider = [np.pad(array, ((0, 0), (0, 24)), constant_values=value) for array, value in zip(given, (5, 1, 0), strict=True)]
    np.testing.assert_allclose(session.score(*wider), session.score(*given), atol=1e-4)
    graph = onnx.load(str(tmp_path / "served" / "model.onnx"))
    assert {prop.key: prop.value for prop in graph.metadata_props}[POOLING] == "last"
    assert not any(CLS_POSITION in node.input for node in graph.graph.node)
    torch.testing.assert_close(graph_weights(graph)["head.weight"], model.head.weight.detach())
    with pytest.raises(ExportError, match="padding cannot be removed"):
        unpad(graph)


@pytest.mark.parametrize(
    ("name", "pooling"), [("deberta", "cls"), ("mpnet", "cls"), ("modernbert-cls", "cls"), ("roberta", "mean")]
)
def test_a_cross_encoder_that_is_trained_here_is_exported_on_other_encoders(
    checkpoint: Callable[[str], Path], tmp_path: Path, name: str, pooling: str
) -> None:
    """Other encoders train, export and serve in test_round_trip."""
    model = CrossEncoder.from_backbone(str(checkpoint(name)), attention="eager", pooling=pooling).eval()
    torch.nn.init.normal_(model.head.weight)
    export_ranker(model, tmp_path / "model.onnx")
    assert_equal_pytorch(Session(tmp_path / "model.onnx", Provider.CPU, 1), model, (1, 7), (3, 40))


def test_what_no_graph_computes_is_refused_first(
    checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one line that says what can be exported, before anything is traced."""
    monkeypatch.setattr("export.graph.torch.onnx.export", None)
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64, "vocab_size": 200}
    longformer = CrossEncoder(AutoModel.from_config(AutoConfig.for_model("longformer", **sizes)))
    with pytest.raises(ExportError, match="cross-encoder of the architecture longformer cannot be exported; one of albert, bert, "):
        export_cross_encoder(longformer, tmp_path / "model.onnx")
    marking = CrossEncoder.from_backbone(str(checkpoint("roberta")), marks=8)
    with pytest.raises(ExportError, match="a roberta that marks tokens cannot be exported, only a bert"):
        export_cross_encoder(marking, tmp_path / "model.onnx")
    with pytest.raises(ExportError, match=r"models of the family bag cannot be exported; those of cross_encoder, .* can"):
        export_ranker(Mock(family={"name": "bag"}), tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


def test_an_architecture_that_cannot_be_traced_is_one_line(
    checkpoint: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("no such\noperator")

    monkeypatch.setattr("export.graph.torch.onnx.export", fail)
    with pytest.raises(ExportError, match=r"the architecture bert cannot be traced \(no such operator\)"):
        export_classifier(Classifier.load(checkpoint("bert"), attention="eager"), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_an_encoder_that_does_not_fuse_is_refused(tmp_path: Path, tiny: Tiny) -> None:
    relu = tiny(hidden_act="relu", attn_implementation="eager")
    with pytest.raises(ExportError, match=r"is not fused \(BiasGelu 0 of 2\)"):
        export_cross_encoder(relu, tmp_path / "relu.onnx")


def graph_of(*operators: str) -> onnx.ModelProto:
    """A chain of operators."""
    nodes = [helper.make_node(kind, [f"v{n}", "w", "b"], [f"v{n + 1}"]) for n, kind in enumerate(operators)]
    return helper.make_model(helper.make_graph(nodes, "short", [], []))


@pytest.mark.parametrize(
    ("change", "graph", "problem"),
    [
        (narrow_last_layer, graph_of("Attention", "Relu"), r"is read by \['Relu'\]"),
        (compute_cls_alone, graph_of(), "narrow the last layer first"),
        (compute_cls_alone, graph_of("Attention"), "narrow the last layer first"),
        (lambda graph: add_marks(graph, Marker(4, 2)), graph_of(), "no fused attention"),
        (lambda graph: quantize_static(graph, []), graph_of(), "multiplies no weights with every token"),
    ],
)
def test_a_graph_of_another_form_is_refused(
    change: Callable[[onnx.ModelProto], object], graph: onnx.ModelProto, problem: str
) -> None:
    with pytest.raises(ExportError, match=problem):
        change(graph)


def test_marks_are_those_of_pytorch_and_padding_changes_none(tiny: Tiny, tokenizer: Tokenizer, tmp_path: Path) -> None:
    """Each sequence alone and in batches in PyTorch; in batches in the graph, whose last attention is for [CLS] alone."""
    marking = tiny(attn_implementation="eager")
    marking.marker = Marker(marking.hidden_size, 8)
    path = tmp_path / "model.onnx"
    export_cross_encoder(marking, path)
    graph = onnx.load(str(path))
    compute_cls_alone(graph)
    onnx.save(graph, str(path))
    weights = graph_weights(graph)
    for name, value in marking.marker.state_dict().items():
        torch.testing.assert_close(weights[f"marker.{name}"], value)
    random = np.random.default_rng(0)
    packed = [Packed(random.integers(5, 30000, n).astype(np.int32), 4, np.zeros(1, np.intp)) for n in (9, 40, 17, 70, 12)]
    trained, session = TorchModel(marking, tokenizer, bf16=False), Session(path, "cpu", 1)
    outputs, marks = mark_all(session, packed, 0, 1)
    assert marks is not None
    assert outputs == pytest.approx(score_all(session, packed, 0, 1), abs=0)
    together, alone = trained.mark(packed), [trained.mark([one]) for one in packed]
    assert together.outputs == pytest.approx(np.concatenate([one.outputs for one in alone]), abs=1e-5)
    assert outputs == pytest.approx(together.outputs, abs=1e-4)
    for found, in_batches, one in zip(marks, together.marks or (), alone, strict=True):
        assert one.marks is not None
        assert in_batches == pytest.approx(one.marks[0], abs=1e-5)
        assert found == pytest.approx(one.marks[0], abs=1e-4)
    assert float(np.std(np.concatenate(marks))) > 0.001  # the tokens differ, so the comparison says something


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, tiny: Tiny) -> Callable[..., tuple[Path, Path]]:
    """Writes a tiny model's fused graph, and the same asking for [CLS] alone; each once. Never write to them."""

    @cache
    def write(**parts: object) -> tuple[Path, Path]:
        folder = tmp_path_factory.mktemp("graphs")
        aggregator = {"name": parts.pop("aggregator")} if "aggregator" in parts else None
        model = tiny(aggregator, attn_implementation="eager", **parts)
        with torch.no_grad():
            for layer in model.encoder.encoder.layer:  # what the softmax does not see must be there, or it proves nothing
                layer.attention.self.key.bias.normal_(std=2.0)
        export_cross_encoder(model, folder / "before.onnx")
        graph = onnx.load(str(folder / "before.onnx"))
        compute_cls_alone(graph)
        onnx.checker.check_model(graph)
        onnx.save(graph, str(folder / "after.onnx"))
        return folder / "before.onnx", folder / "after.onnx"

    return write


@pytest.mark.parametrize("parts", [{}, {"aggregator": "attention", "num_attention_heads": 4, "num_hidden_layers": 1}])
def test_asking_for_cls_alone_changes_nothing(exported: Callable[..., tuple[Path, Path]], parts: dict[str, object]) -> None:
    before, after = (Session(path, "cpu", threads=1) for path in exported(**parts))
    for rows, length in ((1, 1), (3, 17), (5, 128), (2, 512)):
        given = batch(rows, length)
        expected = before.score(*given)
        np.testing.assert_allclose(after.score(*given), expected, atol=2e-5)
    assert np.ptp(expected) > 0.1


def test_no_token_but_cls_is_multiplied_by_its_weights(exported: Callable[..., tuple[Path, Path]]) -> None:
    nodes = onnx.load(str(exported()[1])).graph.node
    assert sum(node.op_type == "Attention" for node in nodes) == 1, "of two"
    (states,) = {node.input[0] for node in nodes if node.name == "cls_attention/scores"}
    read_by = [(node.op_type, node.name) for node in nodes if states in node.input]
    assert [kind for kind, _ in read_by] == ["Gather", "MatMul", "MatMul"]  # [CLS], and products with a row for each head
    assert {name for _, name in read_by[1:]} == {"cls_attention/scores", "cls_attention/mixed"}


def test_a_graph_in_half_of_the_bytes_is_refused(exported: Callable[..., tuple[Path, Path]]) -> None:
    narrowed = onnx.load(str(exported()[0]))
    halve_weights(narrowed)
    with pytest.raises(ExportError, match="before that of the weights' precision"):
        compute_cls_alone(narrowed)


DESCRIPTIONS: list[dict[str, Any]] = [
    {"name": "max"},
    {"name": "attention"},
    {"name": "cnn"},
    {"name": "transformer", "heads": 2, "layers": 1, "width": 20, "positions": 40},
]


@pytest.mark.parametrize("description", DESCRIPTIONS, ids=str)
def test_logits_are_pytorchs_for_any_number_of_documents_and_passages(
    tmp_path: Path, tiny: Tiny, description: dict[str, Any]
) -> None:
    model = tiny(aggregator=description)
    export_aggregator(model, tmp_path / "aggregator.onnx")
    session = AggregatorSession(tmp_path / "aggregator.onnx", threads=1)
    random = np.random.default_rng(0)
    for counts in ((1,), (5, 0, 2), (16, 16, 3), (40, 1)):
        mask = np.arange(max(counts)) < np.asarray(counts)[:, None]
        states = random.normal(size=(*mask.shape, 32)).astype(np.float32)
        with torch.inference_mode():
            expected = model.combine(torch.from_numpy(states), torch.from_numpy(mask)).numpy()
        np.testing.assert_allclose(session.combine(states, mask), expected, atol=1e-4)
        garbage = np.where(mask[:, :, None], states, 1e30).astype(np.float32)
        np.testing.assert_allclose(session.combine(garbage, mask), expected, atol=1e-4)


def test_the_pace_is_that_of_one_length_on_one_provider(plain: Bundle) -> None:
    model = GraphModel.open(plain, Provider.CPU, 1)
    short, long = (measured_pace(model, length) for length in (8, 512))
    assert short["sequences_per_second"] > long["sequences_per_second"] > 0
    assert (long["tokens"], long["provider"], long["precision"], long["threads"]) == (512, "cpu", "fp32", 1)
