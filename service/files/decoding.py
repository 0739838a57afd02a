"""Decodes a file: if it is not UTF-8, by its byte order mark, by the encoding that a page declares, or by a guess."""

import codecs
import re

from charset_normalizer import from_bytes

from service.files.kinds import HEAD, Extracted, NotTextError, refusal

MARKS = (  # in this order, since UTF-32's little-endian mark begins with UTF-16's
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
NO_MARK = b"", "utf-8"
WESTERN, CENTRAL = "cp1252", "cp1250"
GUESSES = [WESTERN, CENTRAL, "cp1251", "koi8_r", "cp1253", "cp1254", "cp1255", "cp932", "euc_jp", "cp949", "gb18030", "big5"]
COHERENCE_MARGIN = 0.05  # a smaller difference of coherence means nothing
DECLARED = re.compile(
    rb"""<meta\b[^>]*?charset\s*=\s*["']?([\w:.-]+)|\s*<\?xml\b[^>]*?encoding\s*=\s*["']([\w:.-]+)""", re.IGNORECASE
)
DECLARED_WITHIN = 4096  # bytes at the start of a page; HTML says 1024
AS_WESTERN = ("iso-8859-1", "latin1", "us-ascii")  # browsers read these as cp1252


def decode(content: bytes) -> Extracted:
    """The text of a plain text file. Raises NotTextError."""
    mark, encoding = _marked(content)
    if encoding.startswith("utf-8") and (refused := refusal(content[:HEAD].removeprefix(mark))):
        raise NotTextError(refused)
    return _decode(content, encoding)


def decode_page(content: bytes) -> Extracted:
    """The source of a page of HTML or XHTML: decoded by its byte order mark, else as UTF-8 if it is that, else as it declares."""
    _, encoding = _marked(content)
    if encoding.startswith("utf-8") and (declared := DECLARED.search(content[:DECLARED_WITHIN])):
        named = (declared[1] or declared[2]).decode().lower()
        for candidate in ("utf-8", WESTERN if named in AS_WESTERN else named):
            try:
                return Extracted(content.decode(candidate).removeprefix("\ufeff"))
            except (UnicodeDecodeError, LookupError):
                pass
    return _decode(content, encoding)


def _marked(content: bytes) -> tuple[bytes, str]:
    """The byte order mark and the encoding."""
    return next((mark for mark in MARKS if content.startswith(mark[0])), NO_MARK)


def _decode(content: bytes, encoding: str) -> Extracted:
    try:
        return Extracted(content.decode(encoding))
    except UnicodeDecodeError as error:
        if encoding.startswith("utf-8") and _is_mostly_invalid(content) and (guess := _guess(content)):
            problem = f"is not UTF-8; read as {guess}, which is a guess: convert it if it is wrong (iconv)"
            return Extracted(content.decode(guess), problem=problem)
        place = f"byte {error.start + 1}, 0x{content[error.start]:02x}"
        problem = f"is not all {encoding.removesuffix('-sig').upper()} ({place}); what is not is read as \ufffd"
        return Extracted(content.decode(encoding, errors="replace"), problem=problem)


def _is_mostly_invalid(content: bytes) -> bool:
    """Whether there are at least as many wrong bytes as correct characters beyond ASCII; with fewer, it is flawed UTF-8."""
    text = content.decode(errors="replace")
    wrong = text.count("\ufffd")
    return wrong >= sum(not character.isascii() for character in text) - wrong


def _guess(content: bytes) -> str | None:
    """The likeliest encoding; None if there is none."""
    matches = from_bytes(content, cp_isolation=GUESSES)
    best = matches.best()
    if best is None:
        return None
    western = next((match for match in matches if match.encoding == WESTERN), None)
    if (
        western
        and best.encoding == CENTRAL
        and western.chaos <= best.chaos
        and western.coherence >= best.coherence - COHERENCE_MARGIN
    ):
        best = western
    return WESTERN if WESTERN in best.could_be_from_charset else best.encoding
