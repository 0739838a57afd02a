"""keyblock-encoder."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from training.commands.command import as_yaml, make_parser, quiet_transformers, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Put a sentence encoder into a copy of a bundle."""
    parser = make_parser(
        "keyblock-encoder",
        "Copy a bundle with a sentence encoder that chooses its blocks: it finds what is said in other words, at the price of a "
        "pass over each document when that is prepared.",
    )
    parser.add_argument(
        "model",
        help="a sentence-transformers model that averages its tokens: a directory, or a name on the hub; or a run of a bi_encoder",
    )
    parser.add_argument("--bundle", type=Path, required=True, help="the bundle, whose vocabulary the encoder must share")
    parser.add_argument("--out", type=Path, required=True, help="where the copy goes: a new or empty directory")
    parser.add_argument(
        "--selector",
        type=as_yaml,
        metavar="YAML",
        help="'vectors', or a hybrid with your weights; when left out a hybrid, and vectors with --scale",
    )
    parser.add_argument(
        "--scale",
        type=float,
        metavar="X",
        help="score by the vectors, too: a block's logit is X times its cosine (take the bi_encoder's own `scale`), and the copy "
        "has no other ranker",
    )
    parser.add_argument(
        "--meaning",
        type=float,
        metavar="WEIGHT",
        help="leave the selector as it is, and let the encoder read stored documents in the background; its cosine counts so much "
        "beside the cosine of the bundle's encoder",
    )
    return run(_encoder, parser, arguments, RuntimeError)  # ExportError, SessionError, and PyTorch's own


def _encoder(options: argparse.Namespace) -> None:
    from export.sentences import write_encoder_bundle, write_understanding_bundle
    from keyblock.bundle import load_bundle
    from keyblock.fusion import Fusion

    quiet_transformers()
    given = load_bundle(options.bundle)
    if options.meaning is not None and (options.selector or options.scale):
        raise ValueError("--meaning leaves the bundle's selector and scores as they are: leave out --selector and --scale")
    if options.meaning is None:
        bundle = write_encoder_bundle(given, options.model, options.out, options.selector, options.scale)
    else:
        bundle = write_understanding_bundle(given, options.model, options.out, options.meaning)
    size = sum(entry.bytes for entry in bundle.manifest.files.values())
    print(f"{bundle.path}: {bundle.manifest.name} with the encoder {options.model}, {size / 1e6:.0f} MB")
    if options.meaning is None and bundle.pipeline.config.fusion != Fusion():
        print("its fusion was learned with the old selector: keyblock-calibrate --bundle learns it anew", file=sys.stderr)
