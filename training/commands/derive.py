"""keyblock-derive."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from training.commands.command import count, make_parser, quiet_transformers, run

if TYPE_CHECKING:
    from training.derive.answers import Near


def main(arguments: Sequence[str] | None = None) -> int:
    """Derive lessons from a collection."""
    parser = make_parser(
        "keyblock-derive",
        "Derive a collection of lessons from a collection with gold passages: texts that repeat a question against texts that "
        "answer it, answers in other words, documents of one sentence, and queries as people type them.",
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--collection", type=Path, help="a collection with gold passages (spans.jsonl)")
    source.add_argument("--written", type=Path, nargs="+", metavar="FILE", help="lessons that people wrote, a JSON object a line")
    parser.add_argument("--out", type=Path, required=True, help="the directory to make; its name is the new collection's")
    parser.add_argument("--train", type=count, default=1000, help="lessons of split train at most")
    parser.add_argument("--dev", type=count, default=100, help="lessons of split dev at most")
    parser.add_argument(
        "--near",
        choices=("encoder", "words"),
        default="encoder",
        help="what finds the sentence of a gold passage that answers: the default backbone's sentence vectors, or shared words",
    )
    parser.add_argument("--wordnet", type=Path, help="a directory of WordNet's database files: answers get synonyms from it")
    parser.add_argument("--seed", type=int, default=0, help="of every draw")
    return run(_derive, parser, arguments)


def _derive(options: argparse.Namespace) -> None:
    from training.data.collection import Collection
    from training.derive.collection import derive
    from training.derive.wordnet import WordNet
    from training.derive.written import derive_written

    if options.written:
        made = derive_written(options.written, options.out, options.seed)
    else:
        wordnet = WordNet(options.wordnet) if options.wordnet else None
        splits = {"train": options.train, "dev": options.dev}
        made = derive(Collection(options.collection), splits, options.out, _near(options.near), wordnet, options.seed)
    print(f"{options.out}: {', '.join(f'{count:,} lessons of {split}' for split, count in made.items())}")


def _near(name: str) -> "Near":
    """What finds the sentence that answers."""
    from training.derive.answers import near_by_vectors, near_by_words

    if name == "words":
        return near_by_words
    quiet_transformers()
    from training.recipe import DEFAULT_BACKBONE, backbone_path

    return near_by_vectors(backbone_path(DEFAULT_BACKBONE))
