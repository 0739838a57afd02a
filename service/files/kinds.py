"""What a file is, told from its first bytes: names may lie."""

import codecs
import io
import re
import zipfile
from enum import StrEnum

HEAD = 8192  # bytes: a NUL among them means that it is no text, as for git and ripgrep
ARCHIVE = b"PK\x03\x04"
SAVE = "save it as plain text and give that"
UNPACK = "unpack it and give what is in it"
MISSING = "to read it, install the extra files: pip install 'keyblock[files]'"
NO_TEXT = "there is no text to rank in it"


class Kind(StrEnum):
    """A kind whose text the extra `files` reads."""

    PDF = "a PDF"
    EPUB = "an EPUB"
    WORD = "a Word document (DOCX)"
    HTML = "an HTML page"


# A comment ends at its first mark, and in no other way: else a text that begins with thirty of them would take hours.
_BEFORE_TAG = rb"\s*(<\?xml[^>]*>\s*)?(<!--(?:(?!-->).)*+-->\s*)*+"
# A name that a text may begin with, such as ID3, counts only before bytes that no text has.
READ: tuple[tuple[bytes, Kind], ...] = (
    (rb"\s*%PDF-", Kind.PDF),
    (rb"PK\x03\x04.{26}mimetypeapplication/epub", Kind.EPUB),
    (rb"PK\x03\x04.*word/", Kind.WORD),
    (rb"(?i:%b<(!doctype\s+html|html|head|body|script)\b)" % _BEFORE_TAG, Kind.HTML),
)
REFUSED: tuple[tuple[bytes, str, str], ...] = (
    (rb"PK\x03\x04.{26}mimetypeapplication/vnd\.oasis\.opendocument", "an OpenDocument file", SAVE),
    (rb"PK\x03\x04.*xl/", "an Excel workbook (XLSX)", SAVE),
    (rb"PK\x03\x04.*ppt/", "a PowerPoint presentation (PPTX)", SAVE),
    (rb"PK\x03\x04", "a ZIP archive", UNPACK),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document (DOC, XLS or PPT)", SAVE),
    (rb"\{\\rtf", "rich text (RTF)", SAVE),
    (rb"\x1f\x8b|BZh[1-9]1AY|\xfd7zXZ|\x28\xb5\x2f\xfd|7z\xbc\xaf|Rar!\x1a", "compressed", UNPACK),
    (rb"\x89PNG|\xff\xd8\xff|GIF8[79]a.{0,6}\0|RIFF.{4}WEBPVP8|II\*\0|MM\0\*", "an image", NO_TEXT),
    (rb"ID3[\2-\4]|OggS\0|fLaC\0|RIFF.{4}WAVEfmt |\0\0\0.ftyp", "sound or video", NO_TEXT),
    (rb"(?i:%b<svg\b)" % _BEFORE_TAG, "an image", NO_TEXT),
)
_READ = [(re.compile(pattern, re.DOTALL), kind) for pattern, kind in READ]
_REFUSED = [(re.compile(pattern, re.DOTALL), what, advice) for pattern, what, advice in REFUSED]
_PAGES = (".html", ".htm", ".xhtml")
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)  # UTF-32's in little-endian order begins with UTF-16's


class NotTextError(ValueError):
    """Bytes that are no text, or hold none: what they are, and what to do. One line."""


def kind_of(content: bytes, name: str = "") -> Kind | None:
    """The kind of a file; None for a plain text and for all that is refused.

    Args:
        content: all of it: the table of contents of an archive stands at its end.
        name: tells a page of HTML whose beginning does not.
    """
    head = content[:HEAD]
    if content.startswith(ARCHIVE):
        return _archived(content) or _known(head)
    known = _known(head.removeprefix(codecs.BOM_UTF8))
    if known is None and name.lower().endswith(_PAGES) and (head.startswith(_WIDE) or refusal(head) is None):
        return Kind.HTML
    return known


def refusal(head: bytes) -> str | None:
    """What a file is that has no text to be read, and what to do; None for a text.

    Args:
        head: its first bytes, without a byte order mark.
    """
    for pattern, what, advice in _REFUSED:
        if pattern.match(head):
            return f"is {what}, skipped: {advice}"
    return "is binary, skipped: give a text" if b"\0" in head else None


def _known(head: bytes) -> Kind | None:
    return next((kind for pattern, kind in _READ if pattern.match(head)), None)


def _archived(content: bytes) -> Kind | None:
    """What an archive holds by its table of contents, which the first bytes need not tell."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = frozenset(archive.namelist())
    except (zipfile.BadZipFile, ValueError, RuntimeError):
        return None
    if "word/document.xml" in names:
        return Kind.WORD
    return Kind.EPUB if "META-INF/container.xml" in names and "mimetype" in names else None
