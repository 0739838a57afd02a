"""The options of export and import. Imports neither PyTorch nor onnx, so that --help answers at once."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from keyblock.fusion import Activation
from keyblock.runtime.providers import Provider
from keyblock.text.languages import LANGUAGES
from training.data.collection import Collection

CHOICES = ("english", "universal", *LANGUAGES)


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
        """The provider that runs it."""
        return {
            VariantKind.INT8: Provider.CPU,
            VariantKind.INT8_STATIC: Provider.OPENVINO,
            VariantKind.FP16: Provider.CUDA,
        }[self]


class Average(NamedTuple):
    """Another model whose weights an export averages with the run's.

    Attributes:
        path: a run or bundle of the same architecture, such as the one that training began from.
        share: the run's share of each weight, above 0 and below 1; the other model has the rest.
    """

    path: Path
    share: float


@dataclass(frozen=True)
class Options:
    """How to export.

    Attributes:
        precision: precision of the stored weights.
        provider: the provider that will serve the bundle; the ranking is checked on it.
        collections: collections for dev measurements; none: the small sample in this package, without a ranking check.
        queries: number of queries from each collection's dev split.
        depth: candidates for each query.
        variants: additional graphs for other arithmetics.
        name: the model's name; if empty, that of its run or bundle.
        average: a model whose weights are averaged with the run's; none: the run's alone.
        overwrite: replace the bundle at the target.
    """

    precision: WeightPrecision = WeightPrecision.FP16
    provider: Provider = Provider.AUTO
    collections: Sequence[Collection] = ()
    queries: int = 200
    depth: int = 100
    variants: Sequence[VariantKind] = ()
    name: str = ""
    average: Average | None = None
    overwrite: bool = False


@dataclass(frozen=True)
class ImportOptions:
    """How to import a model that somebody else trained.

    Attributes:
        passage_tokens: the most tokens of a sequence, query included.
        passages: how many passages of a document are read; the best one's score is the document's.
        joint: read the best blocks as one sequence instead, as KeyBlock's own models do.
        activation: maps the logit to the score; none: the activation on the model's card.
        analyzer: finds the terms that select passages, see export.import_defaults; none: the default for the tokenizer.
        frequencies: a table, or a collection whose documents are counted; none: a general table for English, and for any other
            analyzer the frequencies in a document's own blocks.
        precision: precision of the stored weights.
        provider: the provider that will serve the bundle: scores are also compared on it, and the pace is measured.
        variants: additional graphs for other arithmetics.
        template: a decoder's prompt, a name or a file; none: by its architecture. See export.checkpoint.
        instruction: a decoder's instruction if a request gives none; none: the template's.
        yes, no: the words that a decoder answers with; none: the template's.
        pairs: number of pairs that are compared with transformers.
        name: the model's name; if empty, the checkpoint's.
        trust_remote_code: run the checkpoint's own code.
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


def silent(_: str) -> None:
    """Says nothing."""


def add_bundle_arguments(parser: argparse.ArgumentParser, defaults: Options | ImportOptions, variants: str = "") -> None:
    """Add the arguments that all commands share that write a bundle.

    Args:
        parser: gets the arguments.
        defaults: their defaults.
        variants: appended to the help of --variant.
    """
    parser.add_argument("--out", type=Path, required=True, help="the bundle's directory: new, empty, or see --overwrite")
    parser.add_argument("--overwrite", action="store_true", help="replace the bundle at --out")
    parser.add_argument(
        "--precision", type=WeightPrecision, choices=list(WeightPrecision), default=defaults.precision, help="weights (%(default)s)"
    )
    parser.add_argument(
        "--provider", type=Provider, choices=list(Provider), default=defaults.provider, help="where it will be served"
    )
    parser.add_argument(
        "--variant",
        type=VariantKind,
        choices=list(VariantKind),
        action="append",
        default=[],
        help="graphs beside the bundle's own: int8 for CPUs without bf16, int8-static for CPUs with VNNI, fp16 for CUDA; "
        f"repeatable{variants}",
    )
