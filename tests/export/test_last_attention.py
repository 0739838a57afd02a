from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, helper

from export import ExportError
from export.families import export_cross_encoder
from export.last_attention import compute_cls_alone
from export.variants import halve_weights
from keyblock.runtime.session import Session
from tests.export.ranking import batch
from training.model.cross_encoder import CrossEncoder


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, tiny: Callable[..., CrossEncoder]) -> Callable[..., tuple[Path, Path]]:
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
def test_nothing_changes(exported: Callable[..., tuple[Path, Path]], parts: dict[str, object]) -> None:
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


@pytest.mark.parametrize("nodes", [[], [helper.make_node("Attention", ["x", "w", "b"], ["y"])]])
def test_a_graph_of_another_form_is_refused(nodes: list[onnx.NodeProto]) -> None:
    model: ModelProto = helper.make_model(helper.make_graph(nodes, "short", [], []))
    with pytest.raises(ExportError, match="narrow the last layer first"):
        compute_cls_alone(model)
