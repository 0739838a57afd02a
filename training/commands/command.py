"""Shared by the training commands: parsers, common arguments, and errors in one line."""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from keyblock import __version__
from keyblock.runtime.providers import ProviderError

if TYPE_CHECKING:
    from keyblock.text.tokenizer import Tokenizer

USER_ERRORS = (ValueError, OSError, ProviderError)  # errors that the user can correct


def make_parser(program: str, description: str) -> argparse.ArgumentParser:
    """A command's parser, with --version and --help."""
    parser = argparse.ArgumentParser(program, description=description)
    parser.add_argument("--version", action="version", version=f"{program} {__version__}")
    return parser


def run(
    work: Callable[[argparse.Namespace], None],
    parser: argparse.ArgumentParser,
    arguments: Sequence[str] | None,
    *errors: type[Exception],
) -> int:
    """Parse the arguments and do the work. Returns the exit code: 2, with one line on stderr, for USER_ERRORS and these errors."""
    options = parser.parse_args(arguments)
    expected: tuple[type[Exception], ...] = (*USER_ERRORS, *errors)
    try:
        work(options)
    except expected as error:
        print(f"{parser.prog}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        more = "; the same command goes on from the last checkpoint" if parser.prog == "keyblock-train" else ""
        print(f"{parser.prog}: stopped{more}", file=sys.stderr)
        return 130
    return 0


def say_for(program: str) -> Callable[[str], None]:
    """Prints lines about a command's progress to stderr."""
    return lambda line: print(f"{program}: {line}", file=sys.stderr, flush=True)


def quiet_transformers() -> None:
    """Keep the warnings and progress bars of transformers, and the hub's retries, out of a command's own output."""
    import huggingface_hub
    import transformers  # takes seconds: not for --help

    huggingface_hub.logging.set_verbosity_error()

    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()


def count(text: str) -> int:
    """Parse an argument that is a whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1")
    return int(text)


def as_yaml(text: str) -> Any:
    """Parse an argument in YAML."""
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise argparse.ArgumentTypeError(f"{text!r} cannot be read as YAML ({' '.join(str(error).split())})") from None


def add_backbone(parser: argparse.ArgumentParser) -> None:
    """Add the argument that names the backbone whose tokenizer counts tokens."""
    parser.add_argument(
        "--backbone", help="whose tokens count: a directory with a tokenizer.json; that of the default backbone when left out"
    )


def read_tokenizer(backbone: str | None) -> "Tokenizer":
    """The tokenizer of `--backbone`. Raises ValueError for a backbone without a tokenizer.json."""
    from keyblock.text.tokenizer import Tokenizer  # not for --help
    from training.recipe import DEFAULT_BACKBONE, backbone_path

    return Tokenizer(Path(backbone_path(backbone or DEFAULT_BACKBONE)) / "tokenizer.json")
