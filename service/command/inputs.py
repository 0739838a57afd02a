"""Reads files as documents: a file with text is a document, and so is each line of JSON lines; also stdin and directories."""

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
from service.files.bounded import BoundedReader
from service.files.kinds import NotTextError

STDIN = "-"
AUTO, TEXT, JSONL = "auto", "text", "jsonl"
FORMATS = (AUTO, TEXT, JSONL)
LINES_SUFFIXES = (".jsonl", ".ndjson")


class Input(NamedTuple):
    """A document to rank.

    Attributes:
        name: of the file, with the line's number if the document is one of several.
        whole_file: whether it is the whole file, so that its own lines can be counted.
        paged: whether it has a form feed between pages.
    """

    name: str
    text: str
    title: str | None = None
    id: str | int | None = None
    whole_file: bool = True
    paged: bool = False


class Files:
    """The named files, with directories expanded.

    Args:
        names: files, directories, or ``-``.
        recursive: whether directories are read.
        globs: names of files to read in directories; empty for all.
        form: one of FORMATS; auto decides by the name.
        report: gets a message for each file that is left out.
    """

    def __init__(
        self, names: Iterable[str], report: Report, *, recursive: bool = False, globs: Iterable[str] = (), form: str = AUTO
    ) -> None:
        self._report, self._recursive, self._globs, self._form = report, recursive, tuple(globs), form
        self._reader = BoundedReader()
        self._discovered: set[str] = set()  # files found in directories, where a file without text is no failure
        self.names = [file for name in names for file in self._expanded(name)]

    @property
    def total(self) -> int | None:
        """The largest possible number of documents; None if it can only be found by reading."""
        return None if any(map(self._has_lines, self.names)) else len(self.names)

    def read(self) -> Iterator[Input]:
        """The documents, one by one; files that cannot be read are reported."""
        with self._reader:
            for name in self.names:
                try:
                    with open(os.dup(0) if name == STDIN else name, "rb") as file:  # stdin stays open
                        yield from self._lines(name, file) if self._has_lines(name) else self._text(name, file)
                except OSError as error:
                    self._report.fail(f"{name}: {error.strerror or error}")

    def _expanded(self, name: str) -> Iterator[str]:
        if name == STDIN or not os.path.isdir(name):
            yield name
        elif self._recursive:
            for file in self._files_in(name):
                self._discovered.add(file)
                yield file
        else:
            self._report.fail(f"{name}: is a directory; rerank --recursive reads what is in it")

    def _files_in(self, directory: str) -> Iterator[str]:
        """The files in a directory, sorted, without hidden ones; links to directories are not followed."""

        def failed(error: OSError) -> None:
            self._report.fail(f"{error.filename}: {error.strerror}")

        for folder, folders, names in os.walk(directory, onerror=failed):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(names):
                path = os.path.join(folder, name)
                if not name.startswith(".") and self._is_selected(name) and _is_file(path):
                    yield path

    def _is_selected(self, name: str) -> bool:
        return not self._globs or any(fnmatch(name, glob) for glob in self._globs)

    def _has_lines(self, name: str) -> bool:
        return self._form == JSONL or (self._form == AUTO and Path(name).suffix.lower() in LINES_SUFFIXES)

    def _text(self, name: str, file: BinaryIO) -> Iterator[Input]:
        try:
            found = self._reader.read(file.read(), name)
        except NotTextError as error:
            (self._report.note if name in self._discovered else self._report.fail)(f"{name}: {error}")
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
                yield Input(where, document.text, document.title, document.id, whole_file=False)


def _is_file(path: str) -> bool:
    """Whether it is a file, or a link to one; pipes and devices in a directory are not documents."""
    try:
        return stat.S_ISREG(os.stat(path).st_mode)
    except OSError:
        return True  # so that opening it reports the problem


def _problem(error: ValueError) -> str:
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors(include_url=False)[0]
    where = ".".join(map(str, first["loc"]))
    message = first["msg"].removeprefix("Value error, ").replace(" at line 1 column ", " at column ")
    return f"{where}: {message}" if where else message
