"""keyblock text: prints the text of files as keyblock rerank reads it; offsets and lines of passages refer to it."""

import argparse
import sys

from service.command.inputs import open_binary
from service.command.report import Report
from service.files.bounded import BoundedReader
from service.files.kinds import NotTextError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of keyblock text."""
    parser.add_argument("files", metavar="FILE", nargs="+", help="a text, a PDF, EPUB, DOCX or HTML file, or - for stdin")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace, report: Report) -> int:
    """Print the texts. Returns the exit code."""
    with BoundedReader() as reader:
        for name in options.files:
            try:
                with open_binary(name) as file:
                    found = reader.read(file.read(), name)
            except NotTextError as error:
                report.fail(f"{name}: {error}")
                continue
            except OSError as error:
                report.fail(f"{name}: {error.strerror or error}")
                continue
            if found.problem:
                report.note(f"{name}: {found.problem}")
            sys.stdout.buffer.write(found.text.encode("utf-8", "surrogatepass"))
    return int(report.failed)
