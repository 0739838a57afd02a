"""An encoder's graph in fp16 that computes no padding: for CUDA, whose kernels take the tokens of a batch as one long row.

The padding of the (batch, length) input is removed after the embeddings; attention knows where each sequence begins, and all other
nodes work on (tokens, hidden). [CLS] is the first token of each sequence, so padding is restored only in the marks of tokens, one
number each. This works like ONNX Runtime's ``convert_to_packing_mode``, which restores padding before the head, and does not
support `narrow_last_layer`.
"""

from collections.abc import Sequence

from onnx import ModelProto, NodeProto, TensorProto, helper
from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

from export import ExportError
from keyblock.runtime.session import MARKS

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
