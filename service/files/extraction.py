"""Turns a file of any kind into text."""

from collections.abc import Callable

from service.files.decoding import decode
from service.files.kinds import MISSING, Extracted, Kind, NotTextError, UnreadableError, kind_of

EMPTY = {Kind.PDF: "it holds no text: run OCR first (ocrmypdf)"}


def extract(content: bytes, name: str = "") -> Extracted:
    """The text of a file.

    Args:
        content: all of it.
        name: only its suffix is used, to recognise a page of HTML without the usual beginning.

    Raises NotTextError if the file is no text and holds none, or if the extra that reads it is not installed.
    """
    kind = kind_of(content, name)
    if kind is None:
        return decode(content)
    try:
        extracted = _reader(kind)(content)
    except ImportError as error:
        raise NotTextError(f"is {kind}, skipped: {MISSING} ({error})") from None
    except MemoryError:
        raise
    except Exception as error:  # the libraries raise all kinds of errors on a broken file
        raise NotTextError(f"is {kind}, skipped: {_reason(error)}") from None
    if not extracted.text:
        raise NotTextError(f"is {kind}, skipped: {EMPTY.get(kind, 'it holds no text')}")
    return extracted


def _reader(kind: Kind) -> Callable[[bytes], Extracted]:
    """The reader of a kind of file, which may raise any error; each needs its own library. Raises ImportError."""
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


def _reason(error: Exception) -> str:
    if isinstance(error, UnreadableError):
        return str(error)
    return f"it is broken ({type(error).__name__}: {' '.join(str(error).split())[:100]})"
