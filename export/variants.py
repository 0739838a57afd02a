"""The kinds of graphs that a bundle may hold beside its own, each for one arithmetic on one provider."""

from collections import Counter
from enum import StrEnum

from onnx import ModelProto

from export.quantization import quantize
from export.unpadded import unpad
from keyblock.runtime.providers import Provider

FUSED_DOMAIN = "com.microsoft"


class VariantKind(StrEnum):
    """A variant, by its precision."""

    INT8 = "int8"
    FP16 = "fp16"

    @property
    def provider(self) -> Provider:
        """Where it runs."""
        return {VariantKind.INT8: Provider.CPU, VariantKind.FP16: Provider.CUDA}[self]

    def convert(self, model: ModelProto) -> None:
        """Make it of an encoder's fused fp32 graph, in place. Raises ExportError."""
        {VariantKind.INT8: quantize, VariantKind.FP16: unpad}[self](model)


def fused_nodes(model: ModelProto) -> dict[str, int]:
    """A graph's fused nodes, by operator."""
    return dict(Counter(node.op_type for node in model.graph.node if node.domain == FUSED_DOMAIN))


def variant_name(file: str, kind: VariantKind) -> str:
    """What a graph's variant is called in a bundle.

    >>> variant_name("model.onnx", VariantKind.INT8)
    'model.int8.onnx'
    """
    stem, _, ending = file.rpartition(".")
    return f"{stem}.{kind.value}.{ending}"
