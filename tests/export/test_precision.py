"""Weights of fewer bits: halves, products of 8 bits with scales of each batch or fixed ones; and where weights are found."""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from onnx import ModelProto, TensorProto, helper, numpy_helper

from export import ExportError, variants
from export.families import note_parameters
from export.variants import Batch, Reach, halve_weights, observe, quantize, quantize_static, smoothing_factors
from keyblock.runtime.cpus import vnni_feature
from keyblock.runtime.session import INPUTS, Session
from tests.export.conftest import batch
from training.model.cross_encoder import CrossEncoder
from training.model.starting import PARAMETERS, stored_parameters


def graph_of(**values: np.ndarray) -> ModelProto:
    """A graph of weights alone."""
    made = helper.make_graph([], "graph", [], [], [numpy_helper.from_array(value, name) for name, value in values.items()])
    return helper.make_model(made)


@pytest.mark.parametrize("value", [65_520.0, -1e9, float("inf"), float("nan")])
def test_a_weight_that_float16_cannot_hold_is_refused(value: float) -> None:
    with pytest.raises(ExportError, match=r"weight w0 holds .*, which float16 cannot; export with --precision fp32"):
        halve_weights(graph_of(w0=np.asarray([[1.0, value]], np.float32)))


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


def test_weights_are_found_whole_transposed_and_joined() -> None:
    rng = np.random.default_rng(0)
    query, key, value, dense = (rng.normal(size=(4, 4)).astype(np.float32) for _ in range(4))
    bias = rng.normal(size=4).astype(np.float32)
    graph = graph_of(renamed=dense, joined=np.concatenate([query.T, key.T, value.T], axis=1), b=bias, ids=np.arange(3))
    weights = {"query": query, "key": key, "value": value, "dense": dense, "bias": bias, "twin": bias, "lost": query + 1}
    missing = note_parameters(graph, {name: torch.from_numpy(values) for name, values in weights.items()})
    assert missing == ["lost"]
    table = json.loads(next(property.value for property in graph.metadata_props if property.key == PARAMETERS))
    assert table["dense"] == ["renamed", False, 0, 1]
    assert table["key"] == ["joined", True, 1, 3]
    for name, values in dict(stored_parameters(graph, table)).items():
        np.testing.assert_array_equal(values.numpy(), weights[name])


without_overflow = pytest.mark.skipif(
    vnni_feature() is None, reason="without VNNI products of 8 bits overflow: the service does not choose them there"
)


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_a_step_and_the_step_that_is_zero_by_hand() -> None:
    """From -1 to 4.1 are 5.1, of which a step is 0.02; 50 of them lie below 0. What is never below 0 needs no such steps."""
    step, zero = Reach(floats(-1, 0), floats(2, 4.1)).scale
    assert (step, zero) == (pytest.approx(0.02), 50)
    assert Reach(floats(0.5), floats(2.55)).scale == (pytest.approx(0.01), 0)
    assert Reach(floats(-2.55), floats(-0.5)).scale == (pytest.approx(0.01), 255)


def test_channels_are_evened_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """At one half: sqrt(16 / 4) and sqrt(1 / 4). The paper's equation 4 makes activations and weights alike: 8 and 8, 2 and 2."""
    monkeypatch.setattr(variants, "STRENGTH", 0.5)
    reach, weight = Reach(floats(-16, -1), floats(3, 1)), np.array([[4, -1], [0.5, -4]], np.float32)
    factors = smoothing_factors(reach, weight)
    np.testing.assert_allclose(factors, [2, 0.5])
    np.testing.assert_allclose(reach.divided(factors).size, [8, 2])
    np.testing.assert_allclose(np.abs(weight * factors[:, None]).max(axis=1), [8, 2])


def named(rows: int, length: int, padding: int = 0) -> Batch:
    """A batch of whole rows by the names of its inputs."""
    given = zip(INPUTS, batch(rows, length, padded=False), strict=True)
    return {name: np.pad(values, ((0, 0), (0, padding))) for name, values in given}


def test_padding_never_changes_what_is_reached(fp32: Path) -> None:
    graph = onnx.load(str(fp32))
    plain, padded = (observe(graph, [named(3, 20, padding)]) for padding in (0, 12))
    assert plain.keys() == padded.keys()
    assert len(plain) == 5, "four products of the first layer, the attention of the last: [CLS] alone goes on from there"
    for name, reach in plain.items():
        np.testing.assert_allclose(padded[name].least, reach.least, atol=1e-5)
        np.testing.assert_allclose(padded[name].largest, reach.largest, atol=1e-5)


def test_two_batches_reach_as_far_as_the_farther_one(fp32: Path) -> None:
    graph, whole = onnx.load(str(fp32)), named(4, 20)
    halves = [{name: values[rows] for name, values in whole.items()} for rows in (slice(0, 2), slice(2, 4))]
    at_once, in_turn = observe(graph, [whole]), observe(graph, halves)
    for name, reach in at_once.items():
        np.testing.assert_allclose(in_turn[name].size, reach.size, rtol=1e-5)


def logits(graph: ModelProto, path: Path, given: Batch) -> np.ndarray:
    onnx.save(graph, str(path))
    return Session(path, "cpu", threads=1).score(*given.values())


def test_products_with_fixed_scales_are_of_8_bits(fp32: Path) -> None:
    graph = onnx.load(str(fp32))
    assert quantize_static(graph, [named(16, 40)]) == 5
    onnx.checker.check_model(graph)
    weights = [numpy_helper.to_array(t) for t in graph.graph.initializer if t.data_type == TensorProto.INT8 and len(t.dims) == 2]
    assert len(weights) == 5
    assert all((np.abs(weight.astype(int)).max(axis=0) == 127).all() for weight in weights), "each column uses all of its steps"


@without_overflow
def test_with_fixed_scales_logits_stay_close(fp32: Path, tmp_path: Path) -> None:
    graph = onnx.load(str(fp32))
    expected = logits(graph, tmp_path / "before.onnx", named(32, 40))
    quantize_static(graph, [named(16, 40)])
    found = logits(graph, tmp_path / "after.onnx", named(32, 40))
    assert 0 < np.abs(found - expected).mean() < 0.1 * expected.std()


@without_overflow
def test_channels_that_are_far_larger_cost_the_others_nothing(fp32: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One channel of a layer norm is a hundred times as large as the others, and its row of the next weights a hundredth."""
    graph = onnx.load(str(fp32))
    stored = {tensor.name: tensor for tensor in graph.graph.initializer}
    norm = next(node for node in graph.graph.node if node.op_type == "SkipLayerNormalization")
    product = next(node for node in graph.graph.node if node.op_type == "MatMul" and norm.output[0] in node.input)
    for name, factor in ((norm.input[2], 100), (norm.input[3], 100), (product.input[1], 0.01)):
        values = numpy_helper.to_array(stored[name]).copy()
        values[3] *= factor
        stored[name].CopyFrom(numpy_helper.from_array(values, name))
    graph.graph.output.append(helper.make_tensor_value_info(product.output[0], TensorProto.FLOAT, None))

    def multiplied(model: ModelProto) -> np.ndarray:
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        found: np.ndarray = session.run([product.output[0]], dict(named(32, 40)))[0]
        return found

    expected, apart = multiplied(graph), {}
    for strength in (0.0, 0.8):
        monkeypatch.setattr(variants, "STRENGTH", strength)
        changed = ModelProto()
        changed.CopyFrom(graph)
        quantize_static(changed, [named(32, 40)])
        apart[strength] = np.abs(multiplied(changed) - expected).mean()
    assert apart[0.8] < 0.5 * apart[0.0]
