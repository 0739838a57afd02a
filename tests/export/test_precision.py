"""Weights of fewer bits: halves, products of 8 bits, and where weights are found."""

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper

from export import ExportError
from export.families import note_parameters
from export.variants import halve_weights, quantize
from keyblock.runtime.session import Session
from tests.export.ranking import batch
from training.model.cross_encoder import CrossEncoder
from training.model.starting import PARAMETERS, stored_parameters


def graph_of(*weights: np.ndarray) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(values.astype(np.float32), f"w{i}") for i, values in enumerate(weights)]
    return helper.make_model(helper.make_graph([helper.make_node("Identity", ["w0"], ["y"])], "weights", [], [], tensors))


def test_matrices_are_halved_and_vectors_kept() -> None:
    model = graph_of(np.full((2, 3), 0.1), np.full(3, 0.1))
    assert halve_weights(model) == 1
    kinds = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    assert kinds == {"w0_fp16": TensorProto.FLOAT16, "w1": TensorProto.FLOAT}
    cast, identity = model.graph.node
    assert (cast.op_type, list(cast.input), list(cast.output)) == ("Cast", ["w0_fp16"], ["w0"])
    assert list(identity.input) == ["w0"]


@pytest.mark.parametrize("value", [65_520.0, -1e9, float("inf"), float("nan")])
def test_a_weight_that_float16_cannot_hold_is_refused(value: float) -> None:
    with pytest.raises(ExportError, match=r"weight w0 holds .*, which float16 cannot; export with --precision fp32"):
        halve_weights(graph_of(np.asarray([[1.0, value]])))


def test_the_logits_are_those_of_rounded_weights(run: Path, fp32: Path, tmp_path: Path) -> None:
    model = CrossEncoder.load(run / "checkpoint", attention="eager")
    path = tmp_path / "model.onnx"
    graph = onnx.load(str(fp32))
    halve_weights(graph)
    onnx.save(graph, str(path))
    assert path.stat().st_size < 0.55 * fp32.stat().st_size
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.copy_(parameter.half().float())
    given = batch(4, 48)
    with torch.inference_mode():
        expected = model(*map(torch.from_numpy, given)).numpy()
    np.testing.assert_allclose(Session(path, "cpu", threads=1).score(*given), expected, atol=1e-4)


def test_products_are_of_8_bits_and_logits_stay_close(fp32: Path, tmp_path: Path) -> None:
    before, after = fp32, tmp_path / "int8.onnx"
    graph = onnx.load(str(before))
    quantize(graph)
    onnx.save(graph, str(after))
    operators = {node.op_type for node in graph.graph.node}
    assert {"QAttention", "MatMulInteger", "QEmbedLayerNormalization"} <= operators
    assert not operators & {"Attention", "MatMul", "Gemm"}
    matrices = {tensor.data_type for tensor in graph.graph.initializer if len(tensor.dims) > 1}
    assert matrices == {TensorProto.INT8, TensorProto.UINT8}  # the latter are embeddings: rows, not products
    weights = [numpy_helper.to_array(tensor) for tensor in graph.graph.initializer if tensor.data_type == TensorProto.INT8]
    assert max(np.abs(weight.astype(int)).max() for weight in weights) == 64  # two products with 255 fit into 16 bits on any CPU
    assert after.stat().st_size < 0.3 * before.stat().st_size
    given = batch(64, 48, padded=False)
    expected, found = (Session(path, "cpu", threads=1).score(*given) for path in (before, after))
    assert 0 < np.abs(found - expected).mean() < 0.2 * expected.std()
    assert np.corrcoef(found, expected)[0, 1] > 0.98


def stored_graph_of(**values: np.ndarray) -> ModelProto:
    made = helper.make_graph([], "graph", [], [], [numpy_helper.from_array(value, name) for name, value in values.items()])
    return helper.make_model(made)


def test_weights_are_found_whole_transposed_and_joined() -> None:
    rng = np.random.default_rng(0)
    query, key, value, dense = (rng.normal(size=(4, 4)).astype(np.float32) for _ in range(4))
    bias = rng.normal(size=4).astype(np.float32)
    graph = stored_graph_of(renamed=dense, joined=np.concatenate([query.T, key.T, value.T], axis=1), b=bias, ids=np.arange(3))
    weights = {"query": query, "key": key, "value": value, "dense": dense, "bias": bias, "twin": bias, "lost": query + 1}
    missing = note_parameters(graph, {name: torch.from_numpy(values) for name, values in weights.items()})
    assert missing == ["lost"]
    table = json.loads(next(property.value for property in graph.metadata_props if property.key == PARAMETERS))
    assert table["dense"] == ["renamed", False, 0, 1]
    assert table["key"] == ["joined", True, 1, 3]
    for name, values in dict(stored_parameters(graph, table)).items():
        np.testing.assert_array_equal(values.numpy(), weights[name])


def test_weights_of_half_the_bytes_are_read_behind_their_cast() -> None:
    weight = np.asarray([[0.5, 0.25], [2.0, 1.0]], dtype=np.float32)
    graph = stored_graph_of(w=weight)
    assert note_parameters(graph, {"weight": torch.from_numpy(weight)}) == []
    table = json.loads(graph.metadata_props[0].value)
    graph.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight.astype(np.float16), "w_fp16"))
    graph.graph.node.append(helper.make_node("Cast", ["w_fp16"], ["w"], to=TensorProto.FLOAT))
    np.testing.assert_array_equal(dict(stored_parameters(graph, table))["weight"].numpy(), weight)
