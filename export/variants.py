"""The graphs of a bundle for other arithmetic: fp16, int8 with dynamic or static scales, without padding."""

import logging
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic
from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16, convert_np_to_float16

from export import ExportError
from export.last_attention import CLS_POSITION, compute_cls_alone_if_narrowed
from export.options import VariantKind
from keyblock.packing import Packed
from keyblock.runtime.batching import fill, plan
from keyblock.runtime.session import INPUTS, MARKS
from keyblock.text.tokenizer import Tokenizer
from training.model.cross_encoder import MARKER


def halve_weights(model: ModelProto) -> int:
    """Turn every float32 matrix among the initializers into float16 and a Cast, in place.

    Returns:
        How many were converted.

    Raises:
        ExportError: a weight is not finite or too large for float16 (65,504).
    """
    graph = model.graph
    matrices = [t for t in graph.initializer if t.data_type == TensorProto.FLOAT and len(t.dims) >= 2]
    casts = [_halve(tensor) for tensor in matrices]
    nodes = [*casts, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)
    return len(casts)


def _halve(tensor: TensorProto) -> onnx.NodeProto:
    name, values = tensor.name, numpy_helper.to_array(tensor)
    largest = np.abs(values).max(initial=0.0)
    if not largest <= np.finfo(np.float16).max:
        raise ExportError(f"weight {name} holds {largest}, which float16 cannot; export with --precision fp32")
    stored = f"{name}_fp16"
    # rounds as in_fp16 does, so that a bundle holds a weight of both graphs once
    tensor.CopyFrom(numpy_helper.from_array(convert_np_to_float16(values), stored))
    return onnx.helper.make_node("Cast", [stored], [name], f"{name}_to_fp32", to=TensorProto.FLOAT)


def quantize(model: ModelProto, operators: Sequence[str] | None = None) -> None:
    """Convert an fp32 graph to 8-bit products, in place; of these operators alone, if they are given.

    Weights are signed and have a scale for each column: one scale for a whole matrix moves the logits of a MiniLM by 8 on average,
    a scale for each column by 0.4 to 0.5. Weights have 7 bits, -64 to 64: x86 CPUs without VNNI add two products in 16 bits, which
    255 x 64 + 255 x 64 fits and 8-bit weights overflow.
    """
    with tempfile.TemporaryDirectory(prefix="keyblock-quantize-") as folder:
        before, after = Path(folder) / "fp32.onnx", Path(folder) / "int8.onnx"
        onnx.save(model, str(before))
        with _quiet():
            quantize_dynamic(
                str(before),
                str(after),
                per_channel=True,
                weight_type=QuantType.QInt8,
                op_types_to_quantize=operators,
                reduce_range=True,
                extra_options={"DefaultTensorType": TensorProto.FLOAT},  # fused operators have no shape inference
            )
        model.CopyFrom(onnx.load(str(after)))


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the root logger, on which the quantizer advises an optimisation that was already done."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


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


TOKENS, OFFSETS, STARTS, LONGEST, FIRST = "tokens", "token_offsets", "sequence_starts", "longest_sequence", "cls_rows"


def unpad(model: ModelProto) -> None:
    """Convert a fused fp32 graph with a narrowed last layer, in place. Raises ExportError for a graph of another form."""
    remove_padding(model)
    # the head stays fp32: near a logit of 12, fp16 has steps of 0.008, and equal scores would be ordered by chance
    in_fp16(model, fp32=("Gemm",))


def in_fp16(model: ModelProto, fp32: Sequence[str] = ()) -> None:
    """Let a fp32 graph compute in fp16, in place, except inputs, outputs and the operators in `fp32`."""
    kept = [*DEFAULT_OP_BLOCK_LIST, *fp32]
    model.CopyFrom(convert_float_to_float16(model, keep_io_types=True, disable_shape_infer=True, op_block_list=kept))


def remove_padding(model: ModelProto) -> None:
    """Remove the padding of a fp32 graph, in place; values do not change. Raises ExportError for a graph of another form."""
    graph = model.graph
    embedding = [node for node in graph.node if node.op_type == "EmbedLayerNormalization"]
    narrowed = [node for node in graph.node if node.op_type == "Gather" and "cls_position" in node.input]
    if len(embedding) != 1 or len(narrowed) != 2:
        raise ExportError(
            f"padding cannot be removed: the graph has {len(embedding)} fused embeddings and {len(narrowed)} gathers of [CLS], "
            "not 1 and 2; export an encoder of BERT's architecture"
        )
    states, n_tokens = embedding[0].output[:2]
    nodes: list[NodeProto] = []
    for node in graph.node:
        if MARKS in node.output:
            nodes.append(_padding_again(node))
        nodes.append(_packed(node, states))
        if node.op_type == embedding[0].op_type:
            nodes += _unpadding(states, n_tokens)
    del graph.node[:]
    graph.node.extend(nodes)
    for name, value in (("from_zero", 0), ("from_end", -1), ("one", 1)):
        graph.initializer.append(helper.make_tensor(name, TensorProto.INT64, [1], [value]))


def _unpadding(states: str, n_tokens: str) -> list[NodeProto]:
    """The nodes from (batch, length, hidden) to (tokens, hidden), and to the row of each sequence's [CLS], (batch, 1)."""
    return [
        helper.make_node(
            "RemovePadding", [states, n_tokens], [TOKENS, OFFSETS, STARTS, LONGEST], "remove_padding", domain="com.microsoft"
        ),
        helper.make_node("Slice", [STARTS, "from_zero", "from_end"], ["starts"], "starts_of_sequences"),
        helper.make_node("Unsqueeze", ["starts", "one"], [FIRST], "rows_of_cls"),
    ]


def _padding_again(squeeze: NodeProto) -> NodeProto:
    """The node from the head's marks (tokens, 1) to (batch, length, 1), which `squeeze`, the node after it, then reads."""
    marks = squeeze.input[0]
    squeeze.input[0] = f"{marks}_padded"
    return helper.make_node("RestorePadding", [marks, OFFSETS], [squeeze.input[0]], "restore_padding", domain="com.microsoft")


def _packed(node: NodeProto, states: str) -> NodeProto:
    """The node for tokens without padding."""
    inputs = [TOKENS if name == states else name for name in node.input]
    if node.op_type == "Attention":
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute if a.name in ("num_heads", "scale")}
        packed = [*inputs[:3], OFFSETS, STARTS]
        return helper.make_node("PackedAttention", packed, node.output, node.name, domain="com.microsoft", **attributes)
    changed = NodeProto()
    changed.CopyFrom(node)
    del changed.input[:]
    changed.input.extend(inputs)
    if "cls_position" in inputs:
        changed.CopyFrom(helper.make_node("Gather", [inputs[0], FIRST], node.output, node.name, axis=0))
    return changed


def convert(kind: VariantKind, batches: Sequence[Batch], model: ModelProto) -> None:
    """Make a variant of an encoder's fused fp32 graph, in place; the batches set static scales. Raises ExportError."""
    if kind is VariantKind.INT8_STATIC:
        compute_cls_alone_if_narrowed(model)
        quantize_static(model, batches)
        halve_weights(model)  # the remaining fp32 weights, mostly embeddings
    else:
        {VariantKind.INT8: quantize, VariantKind.FP16: unpad}[kind](model)


def variant_name(file: str, kind: VariantKind) -> str:
    """The file name of a graph's variant in a bundle.

    >>> variant_name("model.onnx", VariantKind.INT8)
    'model.int8.onnx'
    """
    stem, _, ending = file.rpartition(".")
    return f"{stem}.{kind.value}.{ending}"
