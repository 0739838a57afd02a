"""The head that marks tokens in a ranker's graph: a second output, `marks`, of shape (batch, length).

It is added after the graph is fused: the optimizer does not fuse the attention of a layer whose input another node also reads.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from torch import Tensor

from export import ExportError
from keyblock.runtime.session import MARKS
from training.models.marker import MARKER, Marker


def add_marks(model: ModelProto, marker: Marker) -> None:
    """Let a fused encoder's graph mark tokens, in place. Raises ExportError for a graph without fused attention.

    The head reads the last layer's input. See `training.models.marker.Marker` for its arithmetic.
    """
    graph = model.graph
    attention = next((node for node in reversed(graph.node) if node.op_type == "Attention"), None)
    if attention is None:
        raise ExportError("the graph has no fused attention, so nothing says which states its last layer reads")
    weights = {"inner_w": marker.inner.weight.T, "inner_b": marker.inner.bias, "outer_w": marker.outer.weight.T}
    weights |= {"outer_b": marker.outer.bias}
    graph.initializer.extend(numpy_helper.from_array(_array(tensor), _called(name)) for name, tensor in weights.items())
    graph.initializer.append(helper.make_tensor(_called("axis"), TensorProto.INT64, [1], [2]))
    graph.node.extend(_nodes(attention.input[0]))
    graph.output.append(helper.make_tensor_value_info(MARKS, TensorProto.FLOAT, ["batch", "length"]))


def _nodes(states: str) -> Iterator[NodeProto]:
    """The nodes from states (batch, length, hidden) to the marks."""
    steps = ("MatMul inner_w", "Add inner_b", "Relu", "MatMul outer_w", "Add outer_b", "Squeeze axis")
    before = states
    for number, step in enumerate(steps):
        kind, *weights = step.split()
        after = MARKS if number == len(steps) - 1 else _called(f"{number}")
        inputs = [before, *map(_called, weights)]
        yield helper.make_node(kind, inputs, [after], name=f"{MARKER}{kind}_{number}")
        before = after


def _called(name: str) -> str:
    return f"{MARKER}{name}"


def _array(tensor: Tensor) -> NDArray[np.float32]:
    values: NDArray[np.float32] = tensor.detach().float().contiguous().numpy()
    return values
