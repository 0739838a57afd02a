"""8-bit products with static scales: for CPUs with VNNI, through OpenVINO.

Weights have a scale for each column, activations one for each product, from their range in sample sequences. A few channels of a
transformer's activations are far larger than the rest and would leave the rest few of the 255 steps. So each channel is divided by
a factor that depends on its size, and the weights' row is multiplied by it (SmoothQuant, Xiao et al., ICML 2023, equation 4).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

from export import ExportError
from export.graph import CLS_POSITION
from keyblock.packing import Packed
from keyblock.runtime.batching import fill, plan
from keyblock.runtime.session import INPUTS
from keyblock.text.tokenizer import Tokenizer
from training.models.marker import MARKER

STRENGTH = 0.8
"""The paper's alpha: how much of an activation's unevenness goes to the weights. Tried: .4 to 1; see lab/notes/smaller.md."""
STEPS = 255  # between the least and the largest value of unsigned 8 bits
TOP = 127  # the largest value of signed 8 bits
SMALLEST = 1e-4  # a lower bound on sizes, so that a channel that is always 0 causes no division by 0

Batch = Mapping[str, NDArray[np.int64]]
"""The graph's inputs by name, each of shape (batch, length)."""


@dataclass(frozen=True)
class Reach:
    """The range of a product's activations in each channel: two vectors of shape (channels,)."""

    least: NDArray[np.float32]
    largest: NDArray[np.float32]

    def divided(self, by: NDArray[np.float32]) -> "Reach":
        """The range of the activations divided by one positive number for each channel."""
        return Reach(self.least / by, self.largest / by)

    @property
    def size(self) -> NDArray[np.float32]:
        """The largest absolute value of each channel."""
        return np.maximum(np.maximum(np.abs(self.least), np.abs(self.largest)), SMALLEST)

    @property
    def scale(self) -> tuple[np.float32, np.uint8]:
        """The size of a step of 8 bits, and the step of the value 0, so that all channels fit."""
        least, largest = min(self.least.min(), 0.0), max(self.largest.max(), 0.0)
        step = np.float32(max(largest - least, SMALLEST) / STEPS)
        return step, np.uint8(np.clip(np.rint(-least / step), 0, STEPS))


def quantize_static(model: ModelProto, batches: Sequence[Batch]) -> int:
    """Convert an encoder's fused fp32 graph to 8-bit products in its layers, in place.

    A marker, the head and the last layer's products for [CLS] alone do not change: one row of each sequence takes hardly any time.

    Args:
        model: the served graph, but with fp32 weights.
        batches: sample inputs; the range of their activations sets the scales.

    Returns:
        How many products were converted.

    Raises ExportError for a graph without such products.
    """
    products = {node.output[0] for node in _products(model)}
    if not products:
        raise ExportError("the graph multiplies no weights with every token, so nothing can be of 8 bits; leave the variant out")
    reached = observe(model, batches)
    weights = {tensor.name: tensor for tensor in model.graph.initializer}
    nodes: list[NodeProto] = []
    for node in model.graph.node:
        if node.output[0] in products:
            nodes += _quantized_inputs(model, node, reached[node.input[0]], numpy_helper.to_array(weights[node.input[1]]))
        nodes.append(node)
    used = {name for node in nodes for name in node.input}
    kept = [tensor for tensor in model.graph.initializer if tensor.name in used]
    for field, values in ((model.graph.node, nodes), (model.graph.initializer, kept)):
        del field[:]
        field.extend(values)
    return len(products)


def batches_of(packed: Sequence[Packed], tokenizer: Tokenizer) -> list[Batch]:
    """The sequences as inputs of a graph."""
    settings = tokenizer.pad_id, tokenizer.template.document_type
    return [dict(zip(INPUTS, fill(batch, packed, *settings), strict=True)) for batch in plan([len(one.ids) for one in packed])]


def observe(model: ModelProto, batches: Sequence[Batch]) -> dict[str, Reach]:
    """The range of each product's activations, without those of padding."""
    names = sorted({node.input[0] for node in _products(model)})
    observed = ModelProto()
    observed.CopyFrom(model)
    observed.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names)
    session = onnxruntime.InferenceSession(observed.SerializeToString(), providers=["CPUExecutionProvider"])
    inputs = [given.name for given in session.get_inputs()]
    reached: dict[str, Reach] = {}
    for batch in batches:
        real = batch[INPUTS[-1]].astype(np.bool_)
        for name, values in zip(names, session.run(names, {name: batch[name] for name in inputs}), strict=True):
            rows = values[real] if values.shape[:2] == real.shape else values.reshape(-1, values.shape[-1])
            before = reached.get(name, Reach(rows[0], rows[0]))
            reached[name] = Reach(np.minimum(before.least, rows.min(axis=0)), np.maximum(before.largest, rows.max(axis=0)))
    return reached


def smoothing_factors(reach: Reach, weight: NDArray[np.float32]) -> NDArray[np.float32]:
    """The divisor of each channel: larger for large activations, smaller for a large row of weights."""
    rows = np.maximum(np.abs(weight).max(axis=1), SMALLEST)
    factors: NDArray[np.float32] = (reach.size**STRENGTH / rows ** (1 - STRENGTH)).astype(np.float32)
    return factors


def _products(model: ModelProto) -> Iterator[NodeProto]:
    """The nodes that multiply each token's activations with a matrix of weights, except a marker's."""
    matrices = {t.name for t in model.graph.initializer if t.data_type == TensorProto.FLOAT and len(t.dims) == 2}
    of_cls = {CLS_POSITION}  # and all values computed from it
    for node in model.graph.node:
        if of_cls.intersection(node.input):
            of_cls.update(node.output)
        elif node.op_type in ("Attention", "MatMul") and node.input[1] in matrices and MARKER not in node.name:
            yield node


def _quantized_inputs(model: ModelProto, node: NodeProto, reach: Reach, weight: NDArray[np.float32]) -> list[NodeProto]:
    """The nodes before a product, which make it read its activations and weights as rounded to 8 bits."""
    factors, name = smoothing_factors(reach, weight), node.output[0]
    step, zero = reach.divided(factors).scale
    evened = weight * factors[:, None]
    steps = (np.maximum(np.abs(evened).max(axis=0), SMALLEST) / TOP).astype(np.float32)
    stored = {
        "factors": 1 / factors,
        "step": step,
        "zero": zero,
        "weight": np.rint(evened / steps).astype(np.int8),
        "steps": steps,
        "zeros": np.zeros(len(steps), np.int8),
    }
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(value), f"{name}/{key}") for key, value in stored.items())
    rows: list[tuple[str, list[str], str, dict[str, Any]]] = [
        ("Mul", [node.input[0], f"{name}/factors"], "evened", {}),
        ("QuantizeLinear", [f"{name}/evened", f"{name}/step", f"{name}/zero"], "bytes", {}),
        ("DequantizeLinear", [f"{name}/bytes", f"{name}/step", f"{name}/zero"], "read", {}),
        ("DequantizeLinear", [f"{name}/weight", f"{name}/steps", f"{name}/zeros"], "multiplied", {"axis": 1}),
    ]
    node.input[0], node.input[1] = f"{name}/read", f"{name}/multiplied"
    return [helper.make_node(kind, given, [f"{name}/{out}"], name=f"{name}/{out}", **more) for kind, given, out, more in rows]
