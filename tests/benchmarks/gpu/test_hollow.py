"""Emptied and filled again, a graph is what it was: from another graph's numbers, or from a seed."""

import ml_dtypes
import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from benchmarks.gpu.hollow import fill, hollow, in_bf16

RNG = np.random.default_rng(0)
ATTENTION = RNG.standard_normal((96, 288)).astype(np.float16)
"""Query, key and value side by side, as a fused attention holds them."""


def graph(**weights: np.ndarray) -> ModelProto:
    tensors = [numpy_helper.from_array(values, name) for name, values in weights.items()]
    return helper.make_model(helper.make_graph([], "weights", [], [], tensors))


def weights_of(model: ModelProto) -> dict[str, np.ndarray]:
    return {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}


def test_numbers_come_from_another_graph_whole_or_a_third_of_them() -> None:
    """A bias is small, and a matrix that the other graph lacks stays: both travel."""
    own = RNG.standard_normal((96, 96)).astype(np.float32)
    model = graph(key=ATTENTION[:, 96:192].astype(np.float32), fused=ATTENTION, bias=np.ones(96, np.float32), own=own)
    expected, source = weights_of(model), graph(qkv=ATTENTION)
    size = model.ByteSize()
    hollow(model, source)
    assert [tensor.name for tensor in model.graph.initializer if tensor.doc_string] == ["key", "fused"]
    assert model.ByteSize() < size - 90_000
    fill(model, source)
    for name, values in weights_of(model).items():
        assert values.dtype == expected[name].dtype
        np.testing.assert_array_equal(values, expected[name])


def test_random_numbers_are_drawn_by_a_seed_as_transformers_draws_them() -> None:
    first, second = (graph(table=np.ones((100, 64), np.float32), other=np.ones((100, 64), np.float16)) for _ in range(2))
    for model in (first, second):
        hollow(model, rows={100: 50_000})
        fill(model)
    table, other = weights_of(first)["table"], weights_of(first)["other"]
    assert table.shape == (50_000, 64)
    assert other.dtype == np.float16, "an fp16 matrix of 12,800 bytes is not large: it stays"
    np.testing.assert_array_equal(other, 1)
    np.testing.assert_array_equal(table, weights_of(second)["table"])
    assert abs(table.std() - 0.02) < 0.001
    assert abs(table.mean()) < 0.001


def test_bf16_where_fp16_was() -> None:
    """1 + 2^-8 is no bfloat16: it becomes 1. fp32 stays what it is."""
    model = graph(half=np.full((2, 2), 1 + 2.0**-8, np.float16), full=np.full((2, 2), 1 + 2.0**-8, np.float32))
    constant = helper.make_node("Constant", [], ["c"], value=numpy_helper.from_array(np.ones(2, np.float16)))
    casts = [helper.make_node("Cast", ["c"], [name], to=to) for name, to in (("h", TensorProto.FLOAT16), ("f", TensorProto.FLOAT))]
    model.graph.node.extend([constant, *casts])
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT16, [2]))
    in_bf16(model)
    found = weights_of(model)
    assert found["half"].dtype == ml_dtypes.bfloat16
    np.testing.assert_array_equal(found["half"].astype(np.float32), 1)
    assert found["full"].dtype == np.float32
    constant, half, full = model.graph.node
    assert constant.attribute[0].t.data_type == TensorProto.BFLOAT16
    assert [half.attribute[0].i, full.attribute[0].i] == [TensorProto.BFLOAT16, TensorProto.FLOAT]
    assert model.graph.value_info[0].type.tensor_type.elem_type == TensorProto.BFLOAT16
