"""A file's bytes as text: what is not UTF-8 is decoded by its mark, by what a page declares, or by a guess."""

import codecs
import re
from typing import NamedTuple

from charset_normalizer import from_bytes

from service.files.kinds import HEAD, NotTextError, refusal

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
DECLARED = re.compile(
    rb"""<meta\b[^>]*?charset\s*=\s*["']?([\w:.-]+)|\s*<\?xml\b[^>]*?encoding\s*=\s*["']([\w:.-]+)""", re.IGNORECASE
)
DECLARED_WITHIN = 4096  # bytes of a page; HTML says 1024
AS_WESTERN = ("iso-8859-1", "latin1", "us-ascii")  # as browsers read them


class Decoded(NamedTuple):
    """A text.

    Attributes:
        problem: what may be wrong with it; empty where nothing is.
    """

    text: str
    problem: str = ""


def decode(content: bytes) -> Decoded:
    """The text of a file that holds nothing else. Raises NotTextError."""
    mark, encoding, name = _marked(content)
    if name == "UTF-8" and (refused := refusal(content[:HEAD].removeprefix(mark))):
        raise NotTextError(refused)
    return _decoded(content, encoding, name)


def decode_page(content: bytes) -> Decoded:
    """The source of a page of HTML or XHTML: in what its mark says, else UTF-8 where it is that, else in what it declares."""
    _, encoding, name = _marked(content)
    if name == "UTF-8" and (declared := DECLARED.search(content[:DECLARED_WITHIN])):
        named = (declared[1] or declared[2]).decode().lower()
        for tried in ("utf-8", WESTERN if named in AS_WESTERN else named):
            try:
                return Decoded(content.decode(tried).removeprefix("\ufeff"))
            except (UnicodeDecodeError, LookupError):
                pass
    return _decoded(content, encoding, name)


def _marked(content: bytes) -> tuple[bytes, str, str]:
    """The byte order mark, the encoding and its name; UTF-8 where there is none."""
    return next((mark for mark in MARKS if content.startswith(mark[0])), (b"", "utf-8", "UTF-8"))


def _decoded(content: bytes, encoding: str, name: str) -> Decoded:
    if name != "UTF-8":
        return _replaced(content, encoding, name)
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
