"""Turns the bytes of a request into a JSON object: reads and unpacks with a limit, and decodes without stopping the event loop.

A few kilobytes may unpack to gigabytes: unpacking ends at the limit. The options are bounded before they are validated: a validator
works, and complains, once for each value.
"""

import asyncio
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any

import numpy as np
import orjson
import zstandard
from starlette.requests import ClientDisconnect, Request

from keyblock.ranking.warnings import LONGEST_SHOWN
from service.errors import RequestError
from service.http.bodies.piecewise import MOST_OPTION_VALUES, WINDOW, Pieces, not_json
from service.settings import Limits, Settings

DOCUMENTS = ("documents", "texts", "passages", "text_2", "text_1", "queries")  # lists of texts in any dialect
PIECEWISE_FROM = 2 * 2**20  # bytes; orjson holds the interpreter lock for about 4 ms on a body of this size
MOST_VALUES = 1 << 15  # lists, objects and elements; orjson holds the lock for about 15 ms on this many
MOST_OPTION_CHARACTERS = 1 << 20  # of their strings and names
DISCARDED_AT_MOST = 4  # times the limit: read from a refused body, so that the client gets to see the reason
DISCARD_SECONDS = 10.0
MOST_SMALL_MEMBERS, MEMBER_BYTES = 1000, 256  # gzip members or zstd frames: the smallest takes as long as a kilobyte of text
FEED_BYTES = 256  # bytes of a stream unpacked at once: at most 256 KB from gzip, or 8 MB from zstd
LARGEST_WINDOW = 8 << 20  # bytes of a zstd frame's window, which stay in memory: RFC 9659 allows no more over HTTP
_CHARACTER_BYTES = 12  # the largest size of a character in JSON: an escaped surrogate pair
_BACKSLASHES, _MARKED = rb"\\", b"\0\0"  # a raw NUL is not JSON
_HIGH, _LOW = rb"\\u[dD][89abAB][0-9a-fA-F]{2}", rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_LONE = re.compile(rb"%b(?!%b)|(?<!%b)%b" % (_HIGH, _LOW, _HIGH, _LOW))
_TYPES = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
_BOM = b"\xef\xbb\xbf"


async def check_head(request: Request, limits: Limits) -> None:
    """Raise RequestError for a body that will not be read: 415 for its encoding, 413 for its declared length."""
    try:
        check_encoding(request)
        if declared_bytes(request) > limits.max_body_bytes:
            raise too_large(limits)
    except RequestError:
        await discard(request, limits)
        raise


async def read_body(request: Request, settings: Settings, on_growth: Callable[[int], object]) -> bytearray:
    """The whole body, as it was sent.

    Args:
        request: its head must have been checked.
        settings: `max_body_bytes` limits the body, `body_seconds` its time.
        on_growth: called with the number of bytes so far; it may raise RequestError.

    Raises ClientDisconnect, and RequestError: 413 beyond the limit, 408 when it comes too slowly.
    """
    body = bytearray()
    more = True
    try:
        async with asyncio.timeout(settings.body_seconds):
            while more:
                piece, more = await receive(request)
                body += piece
                if len(body) > settings.max_body_bytes:
                    raise too_large(settings)
                on_growth(len(body))
    except TimeoutError:
        raise RequestError(408, f"the body was not there after {settings.body_seconds} s: send it faster, or less") from None
    except RequestError:
        if more:
            await _discard(request, settings)
        raise
    return body


async def receive(request: Request) -> tuple[bytes, bool]:
    """The next piece of a body, and whether more comes. Raises ClientDisconnect."""
    message = await request.receive()
    if message["type"] == "http.disconnect":
        raise ClientDisconnect
    return message.get("body", b""), message.get("more_body", False)


def expects_continue(request: Request) -> bool:
    """Whether the client waits for a go-ahead before it sends its body (Expect: 100-continue)."""
    return "expect" in request.headers


def check_encoding(request: Request, plain: str = "JSON") -> str:
    """The content-encoding. Raises RequestError 415 if it is not supported."""
    if (encoding := encoding_of(request)) not in _MEMBERS:
        raise RequestError(415, f"content-encoding {encoding[:LONGEST_SHOWN]!r} is not supported: send gzip, zstd or plain {plain}")
    return encoding


def encoding_of(request: Request) -> str:
    """The content-encoding, in lower case; an empty header names none."""
    return str(request.headers.get("content-encoding", "")).strip().lower() or "identity"


def declared_bytes(request: Request) -> int:
    """The content-length; 0 if none is declared."""
    declared = request.headers.get("content-length", "")
    digits = declared.lstrip("0")[:20] or "0"  # more than any limit; int() takes no more than 4300
    return int(digits) if declared.isascii() and declared.isdigit() else 0


async def discard(request: Request, limits: Limits) -> bool:
    """Read an unwanted body, up to a limit, and throw it away: most clients read no answer before they have sent their whole body.

    A client with Expect: 100-continue has sent no body, and will not. Returns whether the whole body was read; otherwise the
    connection cannot be used again.
    """
    return not expects_continue(request) and await _discard(request, limits)


def too_large(limits: Limits, problem: str = "is larger") -> RequestError:
    """The error for a body over the limit."""
    return RequestError(413, f"the body {problem} than the limit of {limits.max_body_bytes} bytes: send fewer or shorter documents")


async def _discard(request: Request, limits: Limits) -> bool:
    remaining = DISCARDED_AT_MOST * limits.max_body_bytes
    try:
        async with asyncio.timeout(DISCARD_SECONDS):
            while remaining > 0:
                message = await request.receive()
                remaining -= len(message.get("body", b"")) + 1
                if not message.get("more_body", False):
                    return True
    except TimeoutError:
        pass
    return False


def unpack(body: bytearray, encoding: str, limit: int) -> bytearray | None:
    """Unpack a body, or return None if it unpacks to more than `limit` bytes; it takes no longer than unpacking as many.

    Raises RequestError 400 if it does not fit the encoding.
    """
    unpacked, unpacking = bytearray(), Unpacking(encoding)
    for piece in unpacking.feed(bytes(body)):
        unpacked += piece
        if len(unpacked) > limit:
            return None
    unpacking.end()
    return unpacked


class Unpacking:
    """Unpacks a body that arrives in a stream. A gzip file has members one after the other, zstd has frames."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._member: Any = None  # a member that is not complete yet
        self._received = self._members = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Unpack the next bytes, in pieces of bounded size.

        Raises RequestError 400 if they do not fit the encoding, or come in too many members or frames.
        """
        begin = _MEMBERS[self._encoding]
        if begin is None:
            yield piece
            return
        try:
            for start in range(0, len(piece), FEED_BYTES):
                self._received += FEED_BYTES
                yield from self._unpacked(piece[start : start + FEED_BYTES], begin)
        except (zlib.error, zstandard.ZstdError) as error:
            raise _encoding_error(self._encoding, error) from None

    def end(self) -> None:
        """Check the end of the body. Raises RequestError 400 if it ends too early."""
        if self._member is not None:
            raise _encoding_error(self._encoding, "it ends too early")

    def _unpacked(self, rest: bytes, begin: Callable[[], Any]) -> Iterator[bytes]:
        while self._member is not None or (rest := rest.lstrip(b"\0")):  # a file may be padded
            if self._member is None:
                self._members += 1
                if self._members > MOST_SMALL_MEMBERS + self._received // MEMBER_BYTES:
                    problem = f"{self._received} bytes of the body begin {self._members} gzip members or zstd frames"
                    raise RequestError(400, f"{problem}: compress it as one")
                self._member = begin()
            yield self._member.decompress(rest)
            rest = self._member.unused_data
            if not self._member.eof:
                return
            self._member = None


def _encoding_error(encoding: str, reason: object) -> RequestError:
    if encoding == "zstd" and "too much memory" in str(reason):
        window = f"its window has more than {LARGEST_WINDOW >> 20} MiB, which HTTP does not allow (RFC 9659)"
        return RequestError(400, f"the zstd frame cannot be unpacked: {window}; compress at level 19 or less, and without --long")
    return RequestError(400, f"the body is not {encoding}, which its content-encoding says: {str(reason)[:100]}")


def _gzip_member() -> Any:
    return zlib.decompressobj(wbits=31)


def _zstd_frame() -> Any:
    return zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW).decompressobj()


# what begins to unpack a member; None: nothing is packed
_MEMBERS: Mapping[str, Callable[[], Any] | None] = {
    "identity": None,
    "gzip": _gzip_member,
    "x-gzip": _gzip_member,
    "zstd": _zstd_frame,
}


def parse(body: bytearray, limits: Limits) -> dict[str, Any]:
    """The JSON object in `body`; lone surrogates in escapes become U+FFFD, as users of other parsers expect.

    Raises RequestError: 400 with the place where it is not JSON, 422 if it is not an object, or its options hold too much.
    """
    if not body:
        raise RequestError(400, "the body is not JSON: it is empty (byte 0); send an object with query and documents")
    if body.startswith(_BOM):
        del body[: len(_BOM)]
    if _read_piecewise(body):
        payload: Any = Pieces(body, limits, decode).request(DOCUMENTS)
    else:
        payload = decode(memoryview(body), 0)
    if not isinstance(payload, dict):
        raise RequestError(422, f"the body must be a JSON object with 'query' and 'documents', not {described(payload)}")
    check_options(payload, ("query", *DOCUMENTS), limits.max_documents)
    return payload


def parse_line(line: bytearray, limits: Limits) -> Any:
    """The JSON value in one line of a stream of documents; a large one must be an object. Raises RequestError as `parse` does."""
    if _read_piecewise(line):
        value: Any = Pieces(line, limits, decode).line()
    else:
        value = decode(memoryview(line), 0)
    if isinstance(value, dict):
        check_options(value, ("text", "title"), limits.max_documents)
    return value


def _read_piecewise(body: bytearray) -> bool:
    """Whether decoding a body at once would hold the interpreter lock for long. Marks in texts count too, which does no harm."""
    if len(body) >= PIECEWISE_FROM:
        return True
    codes = np.frombuffer(body, np.uint8)
    return sum(int(np.count_nonzero(codes == ord(mark))) for mark in ",[{") > MOST_VALUES


def decode(piece: memoryview, start: int) -> Any:
    """One JSON value; `start` is its place in the body, for messages. Raises RequestError 400."""
    try:
        return orjson.loads(piece)
    except orjson.JSONDecodeError as error:
        mended = mend_surrogates(piece)
        if mended is None:
            raise _undecoded(error, start, piece) from None
    try:
        return orjson.loads(mended)
    except orjson.JSONDecodeError as error:
        raise _undecoded(error, start, piece) from None


def _undecoded(error: orjson.JSONDecodeError, start: int, piece: memoryview) -> RequestError:
    try:
        str(piece, "utf-8")
    except UnicodeDecodeError as wrong:  # orjson does not say where
        return not_json("it is not UTF-8", start + wrong.start)
    return not_json(error.msg, start + len(error.doc[: error.pos].encode("utf-8", "surrogatepass")))


def mend_surrogates(piece: memoryview) -> bytes | None:
    r"""`piece` with each lone surrogate escape replaced by ``\ufffd``; None if there is none.

    Escaped backslashes are marked first, so that every remaining backslash begins an escape; the neighbouring escapes then show
    whether a surrogate is alone. All steps run in native code, in windows, so that none holds the interpreter lock for long.
    """
    text = bytes(piece)
    if _MARKED[:1] in text:
        return None
    marked = text.replace(_BACKSLASHES, _MARKED)
    mended: list[bytes] = []
    for start in range(0, len(marked), WINDOW):
        before = max(start - _CHARACTER_BYTES, 0)
        window = _LONE.sub(rb"\\ufffd", marked[before : start + WINDOW + _CHARACTER_BYTES])  # keeps the length
        mended.append(window[start - before : start - before + WINDOW])
    found = b"".join(mended).replace(_MARKED, _BACKSLASHES)
    return None if found == text else found


def described(value: object) -> str:
    """A value as it was sent, for messages; a long text cut; of a list, an object or a number too large to write the type."""
    if isinstance(value, str):
        return orjson.dumps(value[:LONGEST_SHOWN]).decode() + " ..." * (len(value) > LONGEST_SHOWN)
    try:
        shown = "" if isinstance(value, list | dict) else orjson.dumps(value).decode()
    except orjson.JSONEncodeError:  # the options' models make an integer of 1e20, and orjson writes 64 bits
        shown = ""
    return shown if 0 < len(shown) <= LONGEST_SHOWN else _TYPES.get(type(value), "null")


def check_options(members: Mapping[str, object], texts: Collection[str], max_documents: int) -> None:
    """Check how much an object holds beside its `texts`. The work is bounded, however much there is.

    Raises RequestError 422, which names the member at which it became too much.
    """
    most, values, characters = MOST_OPTION_VALUES + max_documents, 0, 0
    for name in members:
        waiting: list[object] = [] if name in texts else [name, members[name]]
        while waiting:
            value = waiting.pop()
            values += 1
            characters += len(value) if isinstance(value, str) else 0
            inside: Collection[object] = value if isinstance(value, list | dict) else ()
            if values + len(waiting) + len(inside) > most or characters > MOST_OPTION_CHARACTERS:
                limit = f"{most} values, or {MOST_OPTION_CHARACTERS} characters"
                raise RequestError(422, f"the options hold more than {limit}, up to here", (name[:LONGEST_SHOWN],))
            waiting.extend(inside)
            waiting.extend(value.values() if isinstance(value, dict) else ())
