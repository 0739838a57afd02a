"""How a bundle is exported. Imports neither PyTorch nor onnx, so that --help answers at once."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from keyblock.runtime.providers import Provider
from training.collections.collection import Collection


class WeightPrecision(StrEnum):
    """How a bundle's graph stores its weights."""

    FP16 = "fp16-weights"
    FP32 = "fp32"


class VariantKind(StrEnum):
    """A variant, by its precision."""

    INT8 = "int8"
    FP16 = "fp16"

    @property
    def provider(self) -> Provider:
        """Where it runs."""
        return {VariantKind.INT8: Provider.CPU, VariantKind.FP16: Provider.CUDA}[self]


@dataclass(frozen=True)
class Options:
    """How to export.

    Attributes:
        precision: of the stored weights.
        provider: what the bundle will be served on; the ranking is checked there.
        collections: dev measurements are taken on these; none: the small sample in this package, without a ranking check.
        queries: of each collection's dev split.
        depth: candidates a query.
        variants: graphs for another arithmetic that the bundle gets as well.
        name: the model's; its run's or bundle's when empty.
        overwrite: replace the bundle at the target.
    """

    precision: WeightPrecision = WeightPrecision.FP16
    provider: Provider = Provider.AUTO
    collections: Sequence[Collection] = ()
    queries: int = 200
    depth: int = 100
    variants: Sequence[VariantKind] = ()
    name: str = ""
    overwrite: bool = False
