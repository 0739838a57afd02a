"""The variants of a bundle's graphs, each for one arithmetic on one provider."""

from collections import Counter
from collections.abc import Sequence

from onnx import ModelProto

from export.last_attention import compute_cls_alone_if_narrowed
from export.options import VariantKind
from export.precision import halve_weights
from export.quantization import quantize
from export.static_quantization import Batch, quantize_static
from export.unpadded import unpad

FUSED_DOMAIN = "com.microsoft"


def convert(kind: VariantKind, batches: Sequence[Batch], model: ModelProto) -> None:
    """Make a variant of an encoder's fused fp32 graph, in place; the batches set static scales. Raises ExportError."""
    if kind is VariantKind.INT8_STATIC:
        compute_cls_alone_if_narrowed(model)
        quantize_static(model, batches)
        halve_weights(model)  # the remaining fp32 weights, mostly embeddings
    else:
        {VariantKind.INT8: quantize, VariantKind.FP16: unpad}[kind](model)


def fused_nodes(model: ModelProto) -> dict[str, int]:
    """A graph's fused nodes, by operator."""
    return dict(Counter(node.op_type for node in model.graph.node if node.domain == FUSED_DOMAIN))


def variant_name(file: str, kind: VariantKind) -> str:
    """The file name of a graph's variant in a bundle.

    >>> variant_name("model.onnx", VariantKind.INT8)
    'model.int8.onnx'
    """
    stem, _, ending = file.rpartition(".")
    return f"{stem}.{kind.value}.{ending}"
