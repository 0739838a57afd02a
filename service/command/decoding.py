"""A file's bytes as text. What is no text is refused by its kind; what is not UTF-8 is decoded by its mark or by a guess."""

import codecs
import re
from typing import NamedTuple

from charset_normalizer import from_bytes

MARKS = (  # UTF-32's mark in little-endian order begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8-sig", "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)
WESTERN, CENTRAL = "cp1252", "cp1250"
GUESSES = [WESTERN, CENTRAL, "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp932", "euc_jp", "cp949", "gb18030", "big5"]
NEARLY = 0.05  # of coherence: a difference that says nothing
HEAD = 8192  # bytes: a NUL among them means that it is no text, as for git and ripgrep

SAVE = "save it as plain text and give that"
UNPACK = "unpack it and give what is in it"
NO_TEXT = "there is no text to rank in it"
# A comment ends at its first mark, and in no other way: else a text that begins with thirty of them would take hours.
_BEFORE_TAG = rb"\s*(<\?xml[^>]*>\s*)?(<!--(?:(?!-->).)*+-->\s*)*+"
# A name that a text may begin with, such as ID3, counts only before bytes that no text has.
SIGNATURES: tuple[tuple[bytes, str, str], ...] = (
    (rb"\s*%PDF-", "a PDF", "extract its text (pdftotext) and give that"),
    (rb"PK\x03\x04.{26}mimetypeapplication/epub", "an EPUB", SAVE),
    (rb"PK\x03\x04.{26}mimetypeapplication/vnd\.oasis\.opendocument", "an OpenDocument file", SAVE),
    (rb"PK\x03\x04.*word/", "a Word document (DOCX)", SAVE),
    (rb"PK\x03\x04.*xl/", "an Excel workbook (XLSX)", SAVE),
    (rb"PK\x03\x04.*ppt/", "a PowerPoint presentation (PPTX)", SAVE),
    (rb"PK\x03\x04", "a ZIP archive", UNPACK),
    (rb"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an old Office document (DOC, XLS or PPT)", SAVE),
    (rb"\{\\rtf", "rich text (RTF)", SAVE),
    (rb"\x1f\x8b|BZh[1-9]1AY|\xfd7zXZ|\x28\xb5\x2f\xfd|7z\xbc\xaf|Rar!\x1a", "compressed", UNPACK),
    (rb"\x89PNG|\xff\xd8\xff|GIF8[79]a.{0,6}\0|RIFF.{4}WEBPVP8|II\*\0|MM\0\*", "an image", NO_TEXT),
    (rb"ID3[\2-\4]|OggS\0|fLaC\0|RIFF.{4}WAVEfmt |\0\0\0.ftyp", "sound or video", NO_TEXT),
    (rb"(?i:%b<(!doctype\s+html|html|head|body|script)\b)" % _BEFORE_TAG, "an HTML page", SAVE),
    (rb"(?i:%b<svg\b)" % _BEFORE_TAG, "an image", NO_TEXT),
)
_SIGNATURES = [(re.compile(pattern, re.DOTALL), kind, advice) for pattern, kind, advice in SIGNATURES]


class NotTextError(ValueError):
    """Bytes that are no text: what they are, and what to do."""


class Decoded(NamedTuple):
    """A text.

    Attributes:
        problem: what may be wrong with it; empty where nothing is.
    """

    text: str
    problem: str = ""


def decode(content: bytes) -> Decoded:
    """The text of a file. Raises NotTextError."""
    mark, encoding, name = next((mark for mark in MARKS if content.startswith(mark[0])), (b"", "utf-8", "UTF-8"))
    head = content[:HEAD]
    if name != "UTF-8":
        return _replaced(content, encoding, name)
    for pattern, kind, advice in _SIGNATURES:
        if pattern.match(head.removeprefix(mark)):
            raise NotTextError(f"is {kind}, skipped: {advice}")
    if b"\0" in head:
        raise NotTextError("is binary, skipped: give a text")
    try:
        return Decoded(content.decode(encoding))
    except UnicodeDecodeError:
        return _guessed(content) if _hardly_utf8(content) else _replaced(content, encoding, name)


def _hardly_utf8(content: bytes) -> bool:
    """Whether at least as many bytes are wrong as characters beyond ASCII are right; else it is UTF-8 with a flaw."""
    text = content.decode(errors="replace")
    wrong = text.count("\ufffd")
    return wrong >= sum(not character.isascii() for character in text) - wrong


def _replaced(content: bytes, encoding: str, name: str) -> Decoded:
    try:
        return Decoded(content.decode(encoding))
    except UnicodeDecodeError as error:
        place = f"byte {error.start + 1}, 0x{content[error.start]:02x}"
        problem = f"is not all {name} ({place}); what is not is read as \ufffd"
        return Decoded(content.decode(encoding, errors="replace"), problem)


def _guessed(content: bytes) -> Decoded:
    matches = from_bytes(content, cp_isolation=GUESSES)
    best = matches.best()
    if best is None:
        return _replaced(content, "utf-8", "UTF-8")
    western = next((match for match in matches if match.encoding == WESTERN), None)
    if western and best.encoding == CENTRAL and western.chaos <= best.chaos and western.coherence >= best.coherence - NEARLY:
        best = western
    encoding = WESTERN if WESTERN in best.could_be_from_charset else best.encoding
    return Decoded(
        content.decode(encoding), f"is not UTF-8; read as {encoding}, which is a guess: convert it if it is wrong (iconv)"
    )
