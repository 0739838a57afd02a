"""keyblock-plan."""

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from training.commands.command import make_parser, quiet_transformers, run


def main(arguments: Sequence[str] | None = None) -> int:
    """Say what a recipe would do."""
    parser = make_parser(
        "keyblock-plan", "Say what keyblock-train would read and what is missing. Nothing is trained or downloaded."
    )
    parser.add_argument("recipe", type=Path, nargs="+", help="YAML, as for keyblock-train")
    parser.add_argument("--collection", type=Path, action="append", help="as for keyblock-train; the recipe's own when left out")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change a key of the recipe")
    parser.add_argument("--json", action="store_true", help="print JSON in place of lines")
    return run(_plan, parser, arguments)


def _plan(options: argparse.Namespace) -> None:
    from lab.plan import dry_run
    from training.data.collection import Collection
    from training.recipe import load_recipe

    quiet_transformers()
    recipe = load_recipe(options.recipe, options.set)
    lines = dry_run(recipe, [Collection(path) for path in options.collection or map(Path, recipe.collections)])
    print(json.dumps({"recipe": recipe.name, "plan": lines}, indent=2) if options.json else "\n".join(lines))
