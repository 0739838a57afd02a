"""What collections hold, and the errors of reading them."""

import re
from typing import NamedTuple


class FileError(ValueError):
    """A data file is damaged; one line that names the file."""


class CollectionError(FileError):
    """A part of a collection is missing, or its parts do not fit together; the message is one line for a person."""


class Document(NamedTuple):
    """A document as the collection holds it."""

    doc_id: str
    title: str
    text: str


class Span(NamedTuple):
    """A gold passage: offsets in Unicode code points into the document's text."""

    doc_id: str
    start: int
    end: int


Grades = dict[str, dict[str, int]]
"""Grades by query and document."""

Run = dict[str, dict[str, float]]
"""Scores by query and document; a query's documents are in rank order."""


def find_passage(text: str, passage: str) -> tuple[int, int] | None:
    """Start and end of the first place where the passage's words stand in a row, with any white space between; None without one."""
    words = passage.split()
    if not words:
        return None
    found = re.search(r"\s+".join(map(re.escape, words)), text)
    return found.span() if found else None
