"""Turns PDF files into text: the lines of each page, with a form feed between pages."""

import io
import logging
import re

from pypdf import PasswordType, PdfReader
from pypdf.errors import DependencyError

from service.files.kinds import PAGE_BREAK, Extracted, UnreadableError

ENCRYPTED = "it is encrypted: give a copy without a password (qpdf --decrypt)"
_REPLACED = {
    **{0xFB00 + number: letters for number, letters in enumerate(("ff", "fi", "fl", "ffi", "ffl", "st", "st"))},
    0: None,
    0x0C: "\n",
}
_BROKEN_WORD = re.compile(r"(?<=[^\W\d_A-Z]{2})[-\u00ad\u2010]\n(?=[^\W\d_A-Z]{2})")
_LINE_END = re.compile(r"[^\S\n]+$", re.MULTILINE)
_MOST_NAMED = 5  # pages that a message lists

logging.getLogger("pypdf").setLevel(logging.CRITICAL)  # it would log each flaw of a file that it can handle


def read_pdf(content: bytes) -> Extracted:
    """The text of all pages. Raises UnreadableError if they are encrypted."""
    reader = _open(content)
    pages, failed = list[str](), list[int]()
    for number in range(len(reader.pages)):
        try:
            pages.append(_clean(reader.pages[number].extract_text()))
        except MemoryError:
            raise
        except Exception:  # pypdf raises all kinds of errors on a broken page
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
    return _BROKEN_WORD.sub("", _LINE_END.sub("", text.translate(_REPLACED))).strip("\n")


def _problem(failed: list[int]) -> str:
    """The message about pages that could not be read."""
    if not failed:
        return ""
    named = ", ".join(map(str, failed[:_MOST_NAMED])) + (" ..." if len(failed) > _MOST_NAMED else "")
    return f"is broken in places: page {named} could not be read"
