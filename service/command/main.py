"""The command `keyblock` and its subcommands; exit codes: 0 done, 1 something failed, 2 bad usage."""

import argparse
import os
import sys
from collections.abc import Sequence

from pydantic import ValidationError

from keyblock import __version__
from keyblock.client import KeyBlockError
from service.command import extract, rerank
from service.command.rankers import CommandError
from service.command.report import Report

PROGRAM = "keyblock"
FAILED = 1
INTERRUPTED, PIPE_CLOSED = 130, 141  # as shells say of a command that a signal ended


def parser() -> argparse.ArgumentParser:
    """The command line."""
    made = argparse.ArgumentParser(prog=PROGRAM, description="Rank long documents by their key blocks.")
    made.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = made.add_subparsers(metavar="COMMAND", required=True)
    about = "rank files for a query, and show the passages that decided it"
    rerank.add_arguments(commands.add_parser("rerank", help=about, description=f"{about.capitalize()}."))
    about = "print the text of files as rerank reads it"
    extract.add_arguments(commands.add_parser("text", help=about, description=f"{about.capitalize()}."))
    return made


def read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options, with files between and after them, which argparse takes in one run only. Exits at bad usage, as it does."""
    reader = parser()
    options, rest = reader.parse_known_args(arguments)
    if unknown := [one for one in rest if one.startswith("-") and one != "-"]:
        reader.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.files += rest
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; returns the exit code, with one line on stderr where it failed."""
    options = read_arguments(arguments)
    report = Report(PROGRAM)
    try:
        return int(options.run(options, report))
    except BrokenPipeError:  # the reader closed the pipe
        _drop_output()
        return PIPE_CLOSED
    except OSError as error:  # of files that are read the command tells itself
        _drop_output()
        report.fail(f"cannot write: {error.strerror}")
    except KeyboardInterrupt:
        return INTERRUPTED
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        report.fail(f"KEYBLOCK_{'_'.join(map(str, first['loc'])).upper()}: {first['msg']}")
    except (CommandError, KeyBlockError, ValueError) as error:
        report.fail(" ".join(str(error).split()))
    return FAILED


def _drop_output() -> None:
    """What is still to be written goes nowhere, so that the interpreter does not fail on it when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
