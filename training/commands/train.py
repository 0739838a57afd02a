"""keyblock-train."""

import argparse
import ctypes
import sys
from collections.abc import Sequence
from pathlib import Path

from training.commands.command import make_parser, quiet_transformers, run

MMAP_MAX, TRIM_THRESHOLD, TOP_PAD = -4, -1, -2  # glibc's mallopt(3)
PAD = 256 * 2**20  # bytes


def main(arguments: Sequence[str] | None = None) -> int:
    """Train a recipe."""
    parser = make_parser("keyblock-train", "Train a ranker; the same command goes on where a stopped run left off.")
    parser.add_argument(
        "recipe", type=Path, nargs="+", help="YAML; see training/recipes; of several each goes over those before it"
    )
    parser.add_argument(
        "--collection",
        type=Path,
        action="append",
        help="a directory, a YAML file or ir_datasets:NAME; may be repeated; the recipe's own when left out",
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key of the recipe")
    parser.add_argument("--out", type=Path, required=True, help="the run directory")
    parser.add_argument(
        "--cache",
        type=Path,
        help="where prepared documents are kept for other runs; default KEYBLOCK_CACHE, else ~/.cache/keyblock",
    )
    if arguments is None:  # the process is this command's own
        keep_memory()
    return run(_train, parser, arguments)


def keep_memory() -> None:
    """Let this process keep the memory that it frees, where the C library is glibc.

    Else glibc gives every large tensor back, and the kernel clears pages for the next one, which is often longer work than the
    operation on it.
    """
    if sys.platform == "linux" and hasattr(libc := ctypes.CDLL(None), "mallopt"):
        for parameter, value in ((MMAP_MAX, 0), (TRIM_THRESHOLD, -1), (TOP_PAD, PAD)):
            libc.mallopt(parameter, value)


def _train(options: argparse.Namespace) -> None:
    from training.data.collection import Collection
    from training.data.prepared_cache import default_directory
    from training.learn.best import train_best
    from training.learn.train import fitted, train
    from training.recipe import RecipeError, load_recipe

    quiet_transformers()
    recipe = load_recipe(options.recipe, options.set)
    collections = [Collection(path) for path in options.collection or map(Path, recipe.collections)]
    if not collections:
        raise RecipeError(f"{options.recipe[0]}: names no collections of its own; give --collection")
    procedure = train_best if recipe.best else train
    procedure(fitted(recipe, collections), collections, options.out, options.cache or default_directory())
