"""Files as documents: one that is or holds a text is a document, and so is each of JSON lines; stdin and directories too."""

import codecs
import os
import stat
from collections.abc import Iterable, Iterator
from fnmatch import fnmatch
from pathlib import Path
from typing import BinaryIO, NamedTuple

from pydantic import ValidationError

from keyblock.wire import Document
from service.command.report import Report
from service.files.extraction import extract
from service.files.kinds import NotTextError

STDIN = "-"
AUTO, TEXT, JSONL = "auto", "text", "jsonl"
FORMATS = (AUTO, TEXT, JSONL)
LINES_SUFFIXES = (".jsonl", ".ndjson")


class Input(NamedTuple):
    """A document to be ranked.

    Attributes:
        name: the file's, with the line's number where it is one of several.
        alone: whether it is all of its file, so that its own lines can be counted.
        paged: whether it has a form feed between pages.
    """

    name: str
    text: str
    title: str | None = None
    id: str | int | None = None
    alone: bool = True
    paged: bool = False


class Files:
    """The files that were named, directories expanded.

    Args:
        names: files, directories, or ``-``.
        recursive: whether directories are read.
        globs: names of files that are read in directories; none for all.
        form: one of FORMATS; auto decides by the name.
        report: receives what is left out, and why.
    """

    def __init__(
        self, names: Iterable[str], report: Report, *, recursive: bool = False, globs: Iterable[str] = (), form: str = AUTO
    ) -> None:
        self._report, self._recursive, self._globs, self._form = report, recursive, tuple(globs), form
        self._met: set[str] = set()  # files that nobody named: in a directory, what is no text is no failure
        self.names = [name for given in names for name in self._expanded(given)]

    @property
    def total(self) -> int | None:
        """The most documents there can be; None where that takes reading them."""
        return None if any(map(self._has_lines, self.names)) else len(self.names)

    def read(self) -> Iterator[Input]:
        """The documents, one by one; what cannot be read is reported."""
        for name in self.names:
            try:
                with open_binary(name) as file:
                    yield from self._lines(name, file) if self._has_lines(name) else self._text(name, file)
            except OSError as error:
                self._report.fail(f"{name}: {error.strerror or error}")

    def _expanded(self, given: str) -> Iterator[str]:
        if given == STDIN or not os.path.isdir(given):
            yield given
        elif self._recursive:
            for name in self._in(given):
                self._met.add(name)
                yield name
        else:
            self._report.fail(f"{given}: is a directory; --recursive reads what is in it")

    def _in(self, directory: str) -> Iterator[str]:
        """Its files, sorted, without hidden ones; links to directories are not followed."""

        def failed(error: OSError) -> None:
            self._report.fail(f"{error.filename}: {error.strerror}")

        for folder, folders, names in os.walk(directory, onerror=failed):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                path = os.path.join(folder, name)
                if not name.startswith(".") and self._wanted(name) and _is_file(path):
                    yield path

    def _wanted(self, name: str) -> bool:
        return not self._globs or any(fnmatch(name, glob) for glob in self._globs)

    def _has_lines(self, name: str) -> bool:
        return self._form == JSONL or (self._form == AUTO and Path(name).suffix.lower() in LINES_SUFFIXES)

    def _text(self, name: str, file: BinaryIO) -> Iterator[Input]:
        try:
            found = extract(file.read(), name)
        except NotTextError as error:
            (self._report.note if name in self._met else self._report.fail)(f"{name}: {error}")
            return
        if found.problem:
            self._report.note(f"{name}: {found.problem}")
        yield Input(name, found.text, found.title or None, paged=found.paged)

    def _lines(self, name: str, file: BinaryIO) -> Iterator[Input]:
        for number, line in enumerate(file, 1):
            content = line.removeprefix(codecs.BOM_UTF8).strip()
            if not content:
                continue
            where = f"{name}:{number}"
            try:
                document = Document.model_validate_json(content)
                if document.text is None:
                    raise ValueError("has no text")
            except ValueError as error:
                self._report.fail(f"{where}: {_problem(error)}; skipped")
            else:
                yield Input(where, document.text, document.title, document.id, alone=False)


def open_binary(name: str) -> BinaryIO:
    """The file, or standard input, which stays open. Raises OSError."""
    return open(os.dup(0) if name == STDIN else name, "rb")


def _is_file(path: str) -> bool:
    """Whether it is a file, or a link to one: pipes and devices in a directory are nobody's documents."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True  # and opening it says what is wrong


def _problem(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    where, what = (
        ".".join(map(str, first["loc"])),
        first["msg"].removeprefix("Value error, ").replace(" at line 1 column ", " at column "),
    )
    return f"{where}: {what}" if where else what
