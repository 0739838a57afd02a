"""A file's bytes as a text, whatever kind of file it is."""

from collections.abc import Callable

from service.files.decoding import decode
from service.files.extracted import Extracted, UnreadableError
from service.files.kinds import MISSING, Kind, NotTextError, kind_of

EMPTY = {Kind.PDF: "it holds no text: run OCR first (ocrmypdf)"}


def extract(content: bytes, name: str = "") -> Extracted:
    """The text of a file.

    Args:
        content: all of it.
        name: tells a page of HTML whose beginning does not; else what a file is called counts for nothing.

    Raises NotTextError where it is no text and none is in it, or where the extra that reads it is not installed.
    """
    kind = kind_of(content, name)
    if kind is None:
        text, problem = decode(content)
        return Extracted(text, problem=problem)
    try:
        found = _reader(kind)(content)
    except ImportError as error:
        raise NotTextError(f"is {kind}, skipped: {MISSING} ({error})") from None
    except UnreadableError as error:
        raise NotTextError(f"is {kind}, skipped: {error}") from None
    if not found.text:
        raise NotTextError(f"is {kind}, skipped: {EMPTY.get(kind, 'it holds no text')}")
    return found


def _reader(kind: Kind) -> Callable[[bytes], Extracted]:
    """What reads files of a kind; each needs a library of its own. Raises ImportError."""
    match kind:
        case Kind.PDF:
            from service.files.pdf import read_pdf as read
        case Kind.EPUB:
            from service.files.epub import read_epub as read
        case Kind.WORD:
            from service.files.word import read_word as read
        case Kind.HTML:
            from service.files.html import read_page as read
    return read
