"""Turns PDF files into text: the lines of each page, a form feed between pages, and headings that the outline names."""

import io
import logging
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress

from pypdf import PasswordType, PdfReader
from pypdf.errors import DependencyError
from pypdf.generic import Destination

from service.files.extracted import PAGE_BREAK, Extracted, UnreadableError

ENCRYPTED = "it is encrypted: give a copy without a password (qpdf --decrypt)"
_LIGATURES = {
    0xFB00: "ff",
    0xFB01: "fi",
    0xFB02: "fl",
    0xFB03: "ffi",
    0xFB04: "ffl",
    0xFB05: "st",
    0xFB06: "st",
    0: None,
    0x0C: "\n",
}
_BROKEN_WORD = re.compile(r"(?<=[^\W\d_A-Z]{2})[-\u00ad\u2010]\n(?=[^\W\d_A-Z]{2})")
_LINE_END = re.compile(r"[^\S\n]+$", re.MULTILINE)
_NUMBER = re.compile(r"^[\divx.]+\s+")
_MOST_NAMED = 5  # pages that a message lists
Headings = Mapping[int, Mapping[str, str]]

logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it would log each flaw of a file that it can handle


def read_pdf(content: bytes) -> Extracted:
    """The text of all pages. Raises UnreadableError."""
    try:
        reader = _open(content)
        n_pages = len(reader.pages)
    except (UnreadableError, MemoryError):
        raise
    except Exception as error:  # pypdf raises all kinds of errors on a broken file
        raise UnreadableError(f"it is broken ({' '.join(str(error).split())[:100]})") from None
    headings, pages, failed = _headings(reader), list[str](), list[int]()
    for number in range(n_pages):
        try:
            pages.append(_mark_headings(_clean(reader.pages[number].extract_text()), headings.get(number, {})))
        except MemoryError:
            raise
        except Exception:
            pages.append("")
            failed.append(number + 1)
    text = PAGE_BREAK.join(pages)
    return Extracted(text if text.strip() else "", problem=_problem(failed), paged=True)


def _open(content: bytes) -> PdfReader:
    reader = PdfReader(io.BytesIO(content))
    try:
        if reader.is_encrypted and reader.decrypt("") is PasswordType.NOT_DECRYPTED:
            raise UnreadableError(ENCRYPTED)
    except DependencyError:
        raise UnreadableError(ENCRYPTED) from None
    return reader


def _clean(text: str) -> str:
    """The text without ligatures, halves of characters, blanks at the ends of lines, and hyphens of words across lines."""
    text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return _BROKEN_WORD.sub("", _LINE_END.sub("", text.translate(_LIGATURES))).strip("\n")


def _mark_headings(text: str, titles: Mapping[str, str]) -> str:
    """The text of a page, its headings marked and set apart."""
    if not titles:
        return text
    lines: list[str] = []
    for line in text.split("\n"):
        mark = titles.get(_normalised(line))
        lines += [line] if mark is None else ["", f"{mark} {line.strip()}", ""]
    return "\n".join(lines).strip("\n")


def _headings(reader: PdfReader) -> Headings:
    """The titles in the outline with their marks, for each page, from 0."""
    found: dict[int, dict[str, str]] = defaultdict(dict)
    with suppress(Exception):  # without an outline only the marks are missing
        for entry, level in _entries(reader.outline, 1):
            page = reader.get_destination_page_number(entry)
            if page is not None:
                found[page][_normalised(str(entry.title))] = "#" * min(level, 6)
    return found


def _entries(outline: Iterable[object], level: int) -> Iterator[tuple[Destination, int]]:
    for one in outline:
        if isinstance(one, Destination):
            yield one, level
        elif isinstance(one, list):
            yield from _entries(one, level + 1)


def _normalised(title: str) -> str:
    """A title without its number and case: the page and the outline may write it differently."""
    return _NUMBER.sub("", " ".join(title.split()).casefold())


def _problem(failed: list[int]) -> str:
    """The message about pages that could not be read."""
    if not failed:
        return ""
    named = ", ".join(map(str, failed[:_MOST_NAMED])) + (" ..." if len(failed) > _MOST_NAMED else "")
    return f"is broken in places: page {named} could not be read"
