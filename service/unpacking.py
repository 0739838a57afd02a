"""Compressed bodies, unpacked with a limit: a few kilobytes may unpack to gigabytes."""

import zlib
from collections.abc import Callable, Mapping

import zstandard

from service.errors import RequestError

PIECE = 1 << 20  # bytes unpacked at once
MOST_MEMBERS = 16  # of a gzip file; nobody sends more than one, and each costs a copy of what follows it
ZSTD_HEADER = 18  # bytes that a frame's header has at most
LARGEST_WINDOW = 1 << 27  # bytes that zstd may ask to be kept, as its command line allows


def unpack(body: bytearray, encoding: str, limit: int) -> bytearray:
    """What a body says once it is unpacked.

    Args:
        body: as it was sent.
        encoding: the content-encoding; see `known`.
        limit: bytes that it may unpack to.

    Raises:
        RequestError: 413 when it is more, 400 when it is not what the encoding says.
    """
    unpacker = _UNPACKERS.get(encoding)
    try:
        return body if unpacker is None else unpacker(body, limit)
    except (zlib.error, zstandard.ZstdError) as error:
        raise RequestError(400, f"the body is not {encoding}, which its content-encoding says: {str(error)[:100]}") from None


def known(encoding: str) -> bool:
    """Whether bodies of this content-encoding are read."""
    return encoding == "identity" or encoding in _UNPACKERS


def _gunzip(body: bytearray, limit: int) -> bytearray:
    unpacked = bytearray()
    rest = bytes(body)
    for _ in range(MOST_MEMBERS):
        member = zlib.decompressobj(wbits=31)  # gzip
        unpacked += member.decompress(rest, limit + 1 - len(unpacked))
        _check(unpacked, limit)
        if not member.eof:
            raise zlib.error("it ends too early")
        rest = member.unused_data.lstrip(b"\0")
        if not rest:
            return unpacked
    raise zlib.error(f"it has more than {MOST_MEMBERS} members")


def _unzstd(body: bytearray, limit: int) -> bytearray:
    unpacked = bytearray()
    decompressor = zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW)
    with decompressor.stream_reader(bytes(body), read_across_frames=True) as stream:
        while piece := stream.read(PIECE):
            unpacked += piece
            _check(unpacked, limit)
    if zstandard.frame_content_size(bytes(body[:ZSTD_HEADER])) > len(unpacked):
        raise zstandard.ZstdError("it ends too early")
    return unpacked


def _check(unpacked: bytearray, limit: int) -> None:
    if len(unpacked) > limit:
        raise RequestError(413, f"the body unpacks to more than the limit of {limit} bytes: send fewer or shorter documents")


_UNPACKERS: Mapping[str, Callable[[bytearray, int], bytearray]] = {"gzip": _gunzip, "x-gzip": _gunzip, "zstd": _unzstd}
