"""Products of 8 bits with fixed scales: steps and channels by hand, padding, and a whole graph beside fp32."""

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

from export import ExportError
from export import variants as static_quantization
from export.variants import Batch, Reach, observe, quantize_static, smoothing_factors
from keyblock.runtime.cpus import vnni_feature
from keyblock.runtime.session import INPUTS, Session
from tests.export import ranking

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
    monkeypatch.setattr(static_quantization, "STRENGTH", 0.5)
    reach, weight = Reach(floats(-16, -1), floats(3, 1)), np.array([[4, -1], [0.5, -4]], np.float32)
    factors = smoothing_factors(reach, weight)
    np.testing.assert_allclose(factors, [2, 0.5])
    np.testing.assert_allclose(reach.divided(factors).size, [8, 2])
    np.testing.assert_allclose(np.abs(weight * factors[:, None]).max(axis=1), [8, 2])


def batch(rows: int, length: int, padding: int = 0) -> Batch:
    given = zip(INPUTS, ranking.batch(rows, length, padded=False), strict=True)
    return {name: np.pad(values, ((0, 0), (0, padding))) for name, values in given}


def test_padding_never_changes_what_is_reached(fp32: Path) -> None:
    graph = onnx.load(str(fp32))
    plain, padded = (observe(graph, [batch(3, 20, padding)]) for padding in (0, 12))
    assert plain.keys() == padded.keys()
    assert len(plain) == 5, "four products of the first layer, the attention of the last: [CLS] alone goes on from there"
    for name, reach in plain.items():
        np.testing.assert_allclose(padded[name].least, reach.least, atol=1e-5)
        np.testing.assert_allclose(padded[name].largest, reach.largest, atol=1e-5)


def test_two_batches_reach_as_far_as_the_farther_one(fp32: Path) -> None:
    graph, whole = onnx.load(str(fp32)), batch(4, 20)
    halves = [{name: values[rows] for name, values in whole.items()} for rows in (slice(0, 2), slice(2, 4))]
    at_once, in_turn = observe(graph, [whole]), observe(graph, halves)
    for name, reach in at_once.items():
        np.testing.assert_allclose(in_turn[name].size, reach.size, rtol=1e-5)


def logits(graph: ModelProto, path: Path, given: Batch) -> np.ndarray:
    onnx.save(graph, str(path))
    return Session(path, "cpu", threads=1).score(*given.values())


def test_products_are_of_8_bits(fp32: Path) -> None:
    graph = onnx.load(str(fp32))
    assert quantize_static(graph, [batch(16, 40)]) == 5
    onnx.checker.check_model(graph)
    weights = [numpy_helper.to_array(t) for t in graph.graph.initializer if t.data_type == TensorProto.INT8 and len(t.dims) == 2]
    assert len(weights) == 5
    assert all((np.abs(weight.astype(int)).max(axis=0) == 127).all() for weight in weights), "each column uses all of its steps"


@without_overflow
def test_logits_stay_close(fp32: Path, tmp_path: Path) -> None:
    graph = onnx.load(str(fp32))
    expected = logits(graph, tmp_path / "before.onnx", batch(32, 40))
    quantize_static(graph, [batch(16, 40)])
    found = logits(graph, tmp_path / "after.onnx", batch(32, 40))
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
        found: np.ndarray = session.run([product.output[0]], dict(batch(32, 40)))[0]
        return found

    expected, apart = multiplied(graph), {}
    for strength in (0.0, 0.8):
        monkeypatch.setattr(static_quantization, "STRENGTH", strength)
        changed = ModelProto()
        changed.CopyFrom(graph)
        quantize_static(changed, [batch(32, 40)])
        apart[strength] = np.abs(multiplied(changed) - expected).mean()
    assert apart[0.8] < 0.5 * apart[0.0]


def test_a_graph_without_products_is_refused() -> None:
    with pytest.raises(ExportError, match="multiplies no weights with every token"):
        quantize_static(ModelProto(), [])
