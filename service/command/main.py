"""The command `keyblock` and its subcommands; exit codes: 0 done, 1 something failed, 2 bad usage."""

import argparse
import os
import sys
from collections.abc import Sequence

from pydantic import ValidationError

from keyblock import __version__
from keyblock.client import KeyBlockError
from service.command import rerank
from service.command.inputs import TEXT, Files
from service.command.output import standard_output
from service.command.rankers import CommandError
from service.command.report import PROGRAM, Report

FAILED = 1
INTERRUPTED, PIPE_CLOSED = 130, 141  # the codes that shells give for a command that a signal ended


def parser() -> argparse.ArgumentParser:
    """The parser of the command line."""
    root = argparse.ArgumentParser(prog=PROGRAM, description="Rank long documents by their key blocks.")
    root.add_argument("--version", action="version", version=f"{PROGRAM} {__version__}")
    commands = root.add_subparsers(metavar="COMMAND", required=True)
    about = "rank files for a query, and show the passages that decided it"
    rerank.add_arguments(commands.add_parser("rerank", help=about, description=f"{about.capitalize()}."))
    about = "print the text of files as rerank reads it"
    text = commands.add_parser("text", help=about, description=f"{about.capitalize()}.")
    text.add_argument("files", metavar="FILE", nargs="+", help="a text, a PDF, EPUB, DOCX or HTML file, or - for stdin")
    text.set_defaults(run=print_texts)
    return root


def print_texts(options: argparse.Namespace, report: Report) -> int:
    """Print texts: offsets and lines of passages refer to what is printed. Returns the exit code."""
    output = standard_output()
    for one in Files(options.files, report, form=TEXT).read():
        output.write(one.text.encode("utf-8", "surrogatepass"))
    output.flush()
    return int(report.failed)


def read_arguments(arguments: Sequence[str] | None) -> argparse.Namespace:
    """The options; files may stand between and after them, although argparse takes files in one place only. Exits at bad usage."""
    root_parser = parser()
    options, rest = root_parser.parse_known_args(arguments)
    if unknown := [one for one in rest if one.startswith("-") and one != "-"]:
        root_parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    options.files += rest
    return options


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand. Returns the exit code, with one line on stderr if it failed."""
    options = read_arguments(arguments)
    report = Report()
    try:
        return int(options.run(options, report))
    except BrokenPipeError:  # the reader closed the pipe
        _drop_output()
        return PIPE_CLOSED
    except (CommandError, KeyBlockError) as error:  # before OSError, which a KeyBlockError may be: the client's time was up
        report.fail(_in_a_line(error))
    except OSError as error:  # an error of writing: subcommands report errors of reading themselves
        _drop_output()
        report.fail(f"cannot write: {error.strerror}")
    except KeyboardInterrupt:
        return INTERRUPTED
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        report.fail(f"KEYBLOCK_{'_'.join(map(str, first['loc'])).upper()}: {first['msg']}")
    except ValueError as error:
        report.fail(_in_a_line(error))
    return FAILED


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _drop_output() -> None:
    """Drop the remaining output, so that the interpreter does not fail on it when it ends."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
