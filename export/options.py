"""How a bundle is exported. Imports neither PyTorch nor onnx, so that --help answers at once."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from keyblock.evidence import Activation
from keyblock.runtime.providers import Provider
from training.collections.collection import Collection


class WeightPrecision(StrEnum):
    """How a bundle's graph stores its weights."""

    FP16 = "fp16-weights"
    FP32 = "fp32"


class VariantKind(StrEnum):
    """A variant, by its precision."""

    INT8 = "int8"
    INT8_STATIC = "int8-static"
    FP16 = "fp16"

    @property
    def provider(self) -> Provider:
        """Where it runs."""
        return {
            VariantKind.INT8: Provider.CPU,
            VariantKind.INT8_STATIC: Provider.OPENVINO,
            VariantKind.FP16: Provider.CUDA,
        }[self]


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


@dataclass(frozen=True)
class ImportOptions:
    """How to import a model of others.

    Attributes:
        passage_tokens: of a sequence at most, query included.
        passages: of a document that are read; the best one's score is the document's.
        joint: the best blocks in one sequence instead, as KeyBlock's own models read them.
        activation: from logit to score; none: what the model's card says.
        analyzer: finds the terms that select passages, see export.languages; none: by what the tokenizer was made for.
        frequencies: a table, or a collection whose documents are counted; none: a general table for English, and for any other
            analyzer what the blocks of a document say.
        precision: of the stored weights.
        provider: what the bundle will be served on: scores are compared there too, and the pace is measured.
        variants: graphs for another arithmetic that the bundle gets as well.
        template: what a decoder is asked, a name or a file; none: by its architecture. See export.prompts.
        instruction: what a decoder is told to do where a request says nothing; none: the template's.
        yes, no: the words that a decoder answers with; none: the template's.
        pairs: that are compared with transformers.
        name: the model's; the checkpoint's when empty.
        trust_remote_code: run code that the checkpoint brings along.
        overwrite: replace the bundle at the target.
    """

    passage_tokens: int = 256
    passages: int = 3
    joint: bool = False
    activation: Activation | None = None
    analyzer: str | None = None
    frequencies: Path | None = None
    precision: WeightPrecision = WeightPrecision.FP32
    provider: Provider = Provider.AUTO
    variants: Sequence[VariantKind] = ()
    template: str | None = None
    instruction: str | None = None
    yes: str | None = None
    no: str | None = None
    pairs: int = 384
    name: str = ""
    trust_remote_code: bool = False
    overwrite: bool = False


def add_bundle_arguments(parser: argparse.ArgumentParser, usual: Options | ImportOptions, variants: str = "") -> None:
    """What whoever writes a bundle is asked, whatever it is made of.

    Args:
        parser: gets the arguments.
        usual: their defaults.
        variants: says more of --variant.
    """
    parser.add_argument("--out", type=Path, required=True, help="the bundle's directory: new, empty, or see --overwrite")
    parser.add_argument("--overwrite", action="store_true", help="replace the bundle at --out")
    parser.add_argument(
        "--precision", type=WeightPrecision, choices=list(WeightPrecision), default=usual.precision, help="weights (%(default)s)"
    )
    parser.add_argument("--provider", type=Provider, choices=list(Provider), default=usual.provider, help="where it will be served")
    parser.add_argument(
        "--variant",
        type=VariantKind,
        choices=list(VariantKind),
        action="append",
        default=[],
        help="graphs beside the bundle's own: int8 for CPUs without bf16, int8-static for CPUs with VNNI, fp16 for CUDA; "
        f"repeatable{variants}",
    )
