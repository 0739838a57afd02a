"""Recognises the kind of a file from its first bytes, since names may lie; and what reading it gives."""

import codecs
import io
import re
import zipfile
from enum import StrEnum
from typing import NamedTuple

HEAD = 8192  # first bytes; a NUL among them means that the file is not text, as in git and ripgrep
ARCHIVE = b"PK\x03\x04"
SAVE = "save it as plain text and give that"
UNPACK = "unpack it and give what is in it"
MISSING = "to read it, install the extra files: pip install 'keyblock[files]'"
NO_TEXT = "there is no text to rank in it"
PAGE_BREAK = "\f"


class Kind(StrEnum):
    """A kind of file that the extra `files` can read."""

    PDF = "a PDF"
    EPUB = "an EPUB"
    WORD = "a Word document (DOCX)"
    HTML = "an HTML page"


# A comment ends at its first end mark only: otherwise a text that begins with thirty comments would take hours.
_BEFORE_TAG = rb"\s*(<\?xml[^>]*>\s*)?(<!--(?:(?!-->).)*+-->\s*)*+"
# A signature that could begin a text, such as ID3, only counts before bytes that no text has.
READ_PATTERNS: tuple[tuple[bytes, Kind], ...] = (
    (rb"\s*%PDF-", Kind.PDF),
    (rb"PK\x03\x04.{26}mimetypeapplication/epub", Kind.EPUB),
    (rb"PK\x03\x04.*word/", Kind.WORD),
    (rb"(?i:%b<(!doctype\s+html|html|head|body|script)\b)" % _BEFORE_TAG, Kind.HTML),
)
REFUSED_PATTERNS: tuple[tuple[bytes, str, str], ...] = (
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
_PAGES = (".html", ".htm", ".xhtml")
_WIDE = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE, codecs.BOM_UTF32_BE)  # UTF-32's little-endian mark begins with UTF-16's


class NotTextError(ValueError):
    """The bytes are not a text and hold none; the message is one line with their kind and advice."""


class UnreadableError(ValueError):
    """The text of a whole file of a known kind cannot be read; the message is one line with the reason and advice."""


class Extracted(NamedTuple):
    """The text of a file.

    Attributes:
        text: blocks and spans are offsets into it, in code points.
        title: from the file; empty if it has none.
        problem: a possible fault of the text; empty for none.
        paged: whether the text has a PAGE_BREAK between pages.
    """

    text: str
    title: str = ""
    problem: str = ""
    paged: bool = False


def kind_of(content: bytes, name: str = "") -> Kind | None:
    """The kind of a file; None for plain text and for everything that is refused.

    Args:
        content: the whole file, since an archive's table of contents is at its end.
        name: recognises a page of HTML without the usual beginning.
    """
    head = content[:HEAD]
    if content.startswith(ARCHIVE):
        return _kind_of_archive(content) or _kind_by_head(head)
    kind = _kind_by_head(head.removeprefix(codecs.BOM_UTF8))
    if kind is None and name.lower().endswith(_PAGES) and (head.startswith(_WIDE) or refusal(head) is None):
        return Kind.HTML
    return kind


def refusal(head: bytes) -> str | None:
    """The kind of a file without readable text, and advice; None for a text.

    Args:
        head: the first bytes, without a byte order mark.
    """
    for pattern, description, advice in REFUSED_PATTERNS:
        if re.match(pattern, head, re.DOTALL):
            return f"is {description}, skipped: {advice}"
    return "is binary, skipped: give a text" if b"\0" in head else None


def _kind_by_head(head: bytes) -> Kind | None:
    return next((kind for pattern, kind in READ_PATTERNS if re.match(pattern, head, re.DOTALL)), None)


def _kind_of_archive(content: bytes) -> Kind | None:
    """The kind of an archive by its table of contents, which the first bytes may not show."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            names = frozenset(archive.namelist())
    except (zipfile.BadZipFile, ValueError, RuntimeError):
        return None
    if "word/document.xml" in names:
        return Kind.WORD
    return Kind.EPUB if "META-INF/container.xml" in names and "mimetype" in names else None
