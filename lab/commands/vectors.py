"""keyblock-vectors."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from training.commands.command import as_yaml, count, make_parser, quiet_transformers, run

if TYPE_CHECKING:
    from lab.token_vectors import VectorsRecipe


def main(arguments: Sequence[str] | None = None) -> int:
    """Train static token vectors for the selection of blocks."""
    parser = make_parser(
        "keyblock-vectors",
        "Train the token vectors of the hybrid selector, and its weights; the same command goes on where it was stopped.",
    )
    parser.add_argument(
        "--collection", type=Path, action="append", required=True, help="one with gold passages (spans.jsonl); may be repeated"
    )
    parser.add_argument("--bundle", type=Path, default=Path("models/default"), help="whose tokenizer, blocks and terms are used")
    parser.add_argument("--teacher", help="a sentence encoder: a folder or a hub name; default: all-MiniLM-L6-v2")
    parser.add_argument("--split", default="train", help="the queries to train on")
    parser.add_argument("--dev-split", default="dev", help="the queries to measure on")
    parser.add_argument("--dev-queries", type=count, default=1000, help="of them, a fixed sample of each collection")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a number of the training")
    parser.add_argument("--out", type=Path, required=True, help="the run directory")
    parser.add_argument(
        "--weights",
        type=as_yaml,
        metavar="YAML",
        help="of the hybrid, in place of learned ones, 0 where left out: '{terms: 1, vectors: 2, soft: 1}'",
    )
    parser.add_argument("--into", type=Path, help="also write the bundle with the hybrid selector and these vectors, here")
    return run(_vectors, parser, arguments)


def _vectors(options: argparse.Namespace) -> None:
    from keyblock.bundle import load_bundle
    from lab.hybrid import VectorsRun, write_hybrid_bundle
    from training.data.collection import Collection, distinct_names
    from training.learn.run_directory import locked
    from training.recipe import DEFAULT_BACKBONE, backbone_path, find_start

    quiet_transformers()
    bundle = load_bundle(find_start(options.bundle))
    collections = [Collection(path) for path in options.collection]
    distinct_names(collections)
    run = VectorsRun(
        bundle, collections, (options.split, options.dev_split), _recipe(options.set), options.out, options.dev_queries
    )
    with locked(options.out):
        figures = run.figures(options.teacher or backbone_path(DEFAULT_BACKBONE), options.weights)
        print(json.dumps(figures, indent=1))
        if options.into:
            write_hybrid_bundle(bundle, options.out, options.into)


def _recipe(overrides: Sequence[str]) -> "VectorsRecipe":
    """The default recipe with ``key=value`` changes. Raises RecipeError in one line."""
    from pydantic import ValidationError

    from lab.token_vectors import VectorsRecipe
    from training.recipe import RecipeError, override_key, problems

    tree: dict[str, Any] = {}
    for override in overrides:
        override_key(tree, override)
    try:
        return VectorsRecipe.model_validate(tree)
    except ValidationError as error:
        known = ", ".join(VectorsRecipe.model_fields)
        raise RecipeError(f"--set: {problems(error)}; there are {known}") from None
