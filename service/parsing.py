"""From the bytes of a request to the JSON object they hold: read with a limit, decoded without stopping the event loop."""

import asyncio
import re
from typing import Any

import orjson
from starlette.requests import ClientDisconnect, Request

from service.errors import RequestError
from service.piecewise import Pieces
from service.settings import Limits

DOCUMENTS = ("documents", "texts")
PIECEWISE_FROM = 2 * 2**20  # bytes; orjson holds the interpreter lock for about 4 ms over as much
DISCARDED_AT_MOST = 4  # times the limit: what is read of a refused body, so that the client gets to see why
DISCARD_SECONDS = 10.0
_CHARACTER_BYTES = 12  # a character takes at most so many bytes in JSON: an escaped surrogate pair
_WINDOW = 1 << 20
_ESCAPE = re.compile(rb"\\(?:(u[dD][89abAB]HH\\u[dD][c-fC-F]HH)|(u[dD][89a-fA-F]HH)|.)".replace(b"H", b"[0-9a-fA-F]"), re.DOTALL)
_LONE = 2  # the group of an escaped surrogate without its partner
_TYPES = {dict: "an object", list: "a list", str: "a string", bool: "a boolean", int: "a number", float: "a number"}
_BOM = b"\xef\xbb\xbf"


async def read_body(request: Request, limits: Limits) -> bytearray:
    """The whole body. Raises ClientDisconnect, and RequestError 413 beyond the limit: at once where the length is declared."""
    encoding = request.headers.get("content-encoding", "identity")
    if encoding.lower() != "identity":
        raise RequestError(415, f"content-encoding {encoding[:40]!r} is not supported: send plain JSON")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limits.max_body_bytes:
        await _refuse(request, limits, more="expect" not in request.headers)
    body = bytearray()
    more = True
    while more:
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > limits.max_body_bytes:
            await _refuse(request, limits, more=more)
    return body


async def _refuse(request: Request, limits: Limits, *, more: bool) -> None:
    """Most clients read no answer before their whole body is sent: take in what is left, up to a bound, and throw it away.

    A client that asked first (Expect: 100-continue) has sent nothing, and will not.
    """
    if more:
        await _discard(request, DISCARDED_AT_MOST * limits.max_body_bytes)
    raise RequestError(413, f"the body is larger than the limit of {limits.max_body_bytes} bytes: send fewer or shorter documents")


async def _discard(request: Request, at_most: int) -> None:
    try:
        async with asyncio.timeout(DISCARD_SECONDS):
            while at_most > 0:
                message = await request.receive()
                at_most -= len(message.get("body", b"")) + 1
                if not message.get("more_body", False):
                    return
    except TimeoutError:
        return


def parse(body: bytearray, limits: Limits) -> dict[str, Any]:
    """The JSON object in `body`; lone surrogates in escapes read as U+FFFD, as every other parser's users expect.

    Raises RequestError: 400 with the place where it is not JSON, 422 where it is not an object.
    """
    if body.startswith(_BOM):
        del body[: len(_BOM)]
    if len(body) >= PIECEWISE_FROM:
        return Pieces(body, decode, DOCUMENTS, limits.max_documents, limits.max_document_chars).load()
    payload = decode(memoryview(body), 0)
    if not isinstance(payload, dict):
        raise RequestError(422, f"the body must be a JSON object with 'query' and 'documents', not {json_type(payload)}")
    return payload


def decode(piece: memoryview, start: int) -> Any:
    """One JSON value; `start` is where it stands in the body. Raises RequestError 400."""
    try:
        return orjson.loads(piece)
    except orjson.JSONDecodeError as error:
        mended = mend_surrogates(piece)
        if mended is None:
            raise _not_json(error, start) from None
    try:
        return orjson.loads(mended)
    except orjson.JSONDecodeError as error:
        raise _not_json(error, start) from None


def _not_json(error: orjson.JSONDecodeError, start: int) -> RequestError:
    place = start + len(error.doc[: error.pos].encode("utf-8", "surrogatepass"))
    return RequestError(400, f"the body is not JSON: {error.msg} (byte {place})")


def mend_surrogates(piece: memoryview) -> bytes | None:
    r"""`piece` with each lone surrogate escape replaced by ``\ufffd``; None when there is none.

    Works in windows, so that no step holds the interpreter lock for long.
    """
    mended: list[bytes | memoryview] = []
    done = at = 0
    while at < len(piece):
        limit = at + _WINDOW
        for match in _ESCAPE.finditer(piece, at, limit + _CHARACTER_BYTES):
            if match.start() >= limit:
                break
            at = match.end()
            if match.lastindex == _LONE:
                mended += (piece[done : match.start()], b"\\ufffd")
                done = at
        at = max(at, limit)
    return b"".join((*mended, piece[done:])) if mended else None


def json_type(value: object) -> str:
    """What a JSON value is, in JSON's words."""
    return _TYPES.get(type(value), "null")
