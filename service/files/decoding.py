"""Decodes a file: if it is not UTF-8, by its byte order mark, by the encoding that a page declares, or by a guess."""

import codecs
import re
from typing import NamedTuple

from charset_normalizer import from_bytes

from service.files.kinds import HEAD, NotTextError, refusal

MARKS = (  # in this order, since UTF-32's little-endian mark begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8-sig", "UTF-8"),
    (codecs.BOM_UTF32_LE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF32_BE, "utf-32", "UTF-32"),
    (codecs.BOM_UTF16_LE, "utf-16", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16", "UTF-16"),
)
WESTERN, CENTRAL = "cp1252", "cp1250"
GUESSES = [WESTERN, CENTRAL, "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp932", "euc_jp", "cp949", "gb18030", "big5"]
COHERENCE_MARGIN = 0.05  # a smaller difference of coherence means nothing
DECLARED = re.compile(
    rb"""<meta\b[^>]*?charset\s*=\s*["']?([\w:.-]+)|\s*<\?xml\b[^>]*?encoding\s*=\s*["']([\w:.-]+)""", re.IGNORECASE
)
DECLARED_WITHIN = 4096  # bytes at the start of a page; HTML says 1024
AS_WESTERN = ("iso-8859-1", "latin1", "us-ascii")  # browsers read these as cp1252


class Decoded(NamedTuple):
    """A decoded text.

    Attributes:
        problem: a possible fault of the text; empty for none.
    """

    text: str
    problem: str = ""


def decode(content: bytes) -> Decoded:
    """The text of a plain text file. Raises NotTextError."""
    mark, encoding, name = _byte_order_mark(content)
    if name == "UTF-8" and (refused := refusal(content[:HEAD].removeprefix(mark))):
        raise NotTextError(refused)
    return _decode(content, encoding, name)


def decode_page(content: bytes) -> Decoded:
    """The source of a page of HTML or XHTML: decoded by its byte order mark, else as UTF-8 if it is that, else as it declares."""
    _, encoding, name = _byte_order_mark(content)
    if name == "UTF-8" and (declared := DECLARED.search(content[:DECLARED_WITHIN])):
        named = (declared[1] or declared[2]).decode().lower()
        for candidate in ("utf-8", WESTERN if named in AS_WESTERN else named):
            try:
                return Decoded(content.decode(candidate).removeprefix("\ufeff"))
            except (UnicodeDecodeError, LookupError):
                pass
    return _decode(content, encoding, name)


def _byte_order_mark(content: bytes) -> tuple[bytes, str, str]:
    """The byte order mark, the encoding and its name; UTF-8 if there is no mark."""
    return next((mark for mark in MARKS if content.startswith(mark[0])), (b"", "utf-8", "UTF-8"))


def _decode(content: bytes, encoding: str, name: str) -> Decoded:
    if name != "UTF-8":
        return _decode_with_replacement(content, encoding, name)
    try:
        return Decoded(content.decode(encoding))
    except UnicodeDecodeError:
        return _decode_by_guess(content) if _is_mostly_invalid(content) else _decode_with_replacement(content, encoding, name)


def _is_mostly_invalid(content: bytes) -> bool:
    """Whether there are at least as many wrong bytes as correct characters beyond ASCII; with fewer, it is flawed UTF-8."""
    text = content.decode(errors="replace")
    wrong = text.count("\ufffd")
    return wrong >= sum(not character.isascii() for character in text) - wrong


def _decode_with_replacement(content: bytes, encoding: str, name: str) -> Decoded:
    try:
        return Decoded(content.decode(encoding))
    except UnicodeDecodeError as error:
        place = f"byte {error.start + 1}, 0x{content[error.start]:02x}"
        problem = f"is not all {name} ({place}); what is not is read as \ufffd"
        return Decoded(content.decode(encoding, errors="replace"), problem)


def _decode_by_guess(content: bytes) -> Decoded:
    matches = from_bytes(content, cp_isolation=GUESSES)
    best = matches.best()
    if best is None:
        return _decode_with_replacement(content, "utf-8", "UTF-8")
    western = next((match for match in matches if match.encoding == WESTERN), None)
    if (
        western
        and best.encoding == CENTRAL
        and western.chaos <= best.chaos
        and western.coherence >= best.coherence - COHERENCE_MARGIN
    ):
        best = western
    encoding = WESTERN if WESTERN in best.could_be_from_charset else best.encoding
    return Decoded(
        content.decode(encoding), f"is not UTF-8; read as {encoding}, which is a guess: convert it if it is wrong (iconv)"
    )
