"""keyblock-import."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from export.options import CHOICES, ImportOptions, add_bundle_arguments
from keyblock.bundle import Bundle
from keyblock.fusion import Activation
from training.commands.command import count, make_parser, quiet_transformers, run, say_for


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = make_parser("keyblock-import", "Make a bundle of a cross-encoder that somebody else trained, and prove its scores.")
    defaults = ImportOptions()
    made.add_argument("model", help="a directory with config.json, weights and tokenizer.json; or a name on the hub")
    add_bundle_arguments(made, defaults, "; int8-static is for what keyblock-train trained")
    made.add_argument(
        "--passage-tokens",
        type=count,
        default=defaults.passage_tokens,
        help="tokens of a sequence, query included; at most the model's window (%(default)s)",
    )
    made.add_argument(
        "--passages",
        type=count,
        default=defaults.passages,
        help="passages of a document that are read, the best one's score wins; a short document is one (%(default)s)",
    )
    made.add_argument("--joint", action="store_true", help="read a document's best blocks as one sequence instead")
    made.add_argument("--activation", choices=["sigmoid", "identity"], help="from logit to score; the model card's when left out")
    made.add_argument("--scale", type=float, default=1.0, help="multiplies the logit before --activation (%(default)s)")
    made.add_argument(
        "--analyzer",
        choices=CHOICES,
        metavar="NAME",
        help="finds the terms that select passages: english, universal, or a language's code (de, fr, ...); when left out, english "
        "for a tokenizer of English alone, else universal",
    )
    made.add_argument(
        "--frequencies",
        type=Path,
        help="a frequencies.tsv, or a collection to count; when left out, a general table for english, else none",
    )
    made.add_argument(
        "--pairs", type=_pairs, default=defaults.pairs, help="pairs compared with transformers, 384 or more (%(default)s)"
    )
    decoders = made.add_argument_group("decoders", "For models that answer in words.")
    decoders.add_argument(
        "--template", help="the prompt: qwen3-reranker, mxbai-rerank-v2, or a JSON file; else by the architecture"
    )
    decoders.add_argument("--instruction", help="what the prompt asks for where a request says nothing; else the template's")
    decoders.add_argument("--yes", help="the word for relevant; else the template's")
    decoders.add_argument("--no", help="the word for not relevant; else the template's")
    made.add_argument("--name", default="", help="the model's name in answers; the checkpoint's when left out")
    made.add_argument("--trust-remote-code", action="store_true", help="run Python code that comes with the checkpoint")
    return made


def _pairs(text: str) -> int:
    if (number := count(text)) < ImportOptions.pairs:
        raise argparse.ArgumentTypeError(f"{number} pairs prove too little: {ImportOptions.pairs} or more")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Import a model."""
    return run(_import, parser(), arguments, RuntimeError)  # ExportError, SessionError, and PyTorch's own


def _import(given: argparse.Namespace) -> None:
    from export.importing import import_model  # imports PyTorch, which takes seconds

    quiet_transformers()
    activation = None
    if given.activation or given.scale != 1.0:
        try:
            activation = Activation(name=given.activation or "sigmoid", scale=given.scale)
        except ValidationError:
            raise ValueError(f"--scale {given.scale:g}: must be a number above 0 and at most 1,000,000") from None
    said = {name: value for name, value in vars(given).items() if name in ImportOptions.__dataclass_fields__}
    options = ImportOptions(**said | {"activation": activation, "variants": sorted(set(given.variant))})
    print(summary(import_model(given.model, given.out, options, say_for("keyblock-import"))))


def summary(bundle: Bundle) -> str:
    """The bundle's path and size, the measurements, and the certificate in one line."""
    from export.certificate import in_words  # not for --help

    manifest = bundle.manifest
    proof: dict[str, Any] = manifest.quality["certificate"]["logits"]
    megabytes = sum(entry.bytes for entry in manifest.files.values()) / 1e6
    fused = ", ".join(f"{name} {count}" for name, count in bundle.graph.fused.items()) or "not fused"
    return f"{bundle.path}: {megabytes:.1f} MB, {fused}\n{json.dumps(manifest.quality['import'])}\nOK: logits {in_words(proof)}"
