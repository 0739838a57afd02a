"""Unpacks compressed bodies within a limit: a few kilobytes may unpack to gigabytes."""

import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import zstandard

from service.errors import RequestError

PIECE = 1 << 20  # bytes unpacked at once
MOST_MEMBERS = 16  # of a gzip file in memory; clients send one, and each member costs a copy of the data behind it
MOST_SMALL_MEMBERS, MEMBER_BYTES = 1000, 256  # gzip members or zstd frames: the smallest takes as long as a kilobyte of text
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd", b"\x2a\x4d\x18"  # in the beginning of each frame, and of each frame to skip
ZSTD_HEADER = 18  # largest size of a frame's header in bytes
FEED_BYTES = 256  # bytes of a stream unpacked at once: at most 256 KB from gzip, or 8 MB from zstd
LARGEST_WINDOW = 8 << 20  # bytes of a zstd frame's window, which stay in memory: RFC 9659 allows no more over HTTP


def unpack(body: bytearray, encoding: str, limit: int) -> bytearray:
    """Unpack a body.

    Args:
        body: as it was sent.
        encoding: the content-encoding; see `is_supported`.
        limit: bytes that the body may unpack to.

    Raises:
        RequestError: 413 if it unpacks to more, 400 if it does not fit the encoding.
    """
    unpacker = _UNPACKERS.get(encoding)
    try:
        return body if unpacker is None else unpacker(body, limit)
    except (zlib.error, zstandard.ZstdError) as error:
        raise _encoding_error(encoding, error) from None


def unpack_small(body: bytearray, encoding: str, at_most: int) -> bytearray | None:
    """Unpack a body, or return None if it unpacks to more than `at_most` bytes; it takes no longer than unpacking as many.

    Raises RequestError 400 if it does not fit the encoding.
    """
    try:
        return unpack(body, encoding, at_most)
    except RequestError as error:
        if error.status == 413:
            return None
        raise


def is_supported(encoding: str) -> bool:
    """Whether bodies of this content-encoding can be read."""
    return encoding == "identity" or encoding in _UNPACKERS


class Unpacking:
    """Unpacks a body that arrives in a stream; see `is_supported`."""

    def __init__(self, encoding: str) -> None:
        self._encoding = encoding
        self._start = {"identity": None, "zstd": _zstd().decompressobj}.get(encoding, _gzip_member)
        self._member: Any = None  # a member that is not complete yet
        self._received = self._members = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Unpack the next bytes, in pieces of bounded size.

        Raises RequestError 400 if they do not fit the encoding, or come in too many members or frames.
        """
        if self._start is None:
            yield piece
            return
        try:
            for start in range(0, len(piece), FEED_BYTES):
                self._received += FEED_BYTES
                yield from self._unpacked(piece[start : start + FEED_BYTES])
        except (zlib.error, zstandard.ZstdError) as error:
            raise _encoding_error(self._encoding, error) from None

    def end(self) -> None:
        """Check the end of the body. Raises RequestError 400 if it ends too early."""
        if self._member is not None:
            raise _encoding_error(self._encoding, "it ends too early")

    def _unpacked(self, rest: bytes) -> Iterator[bytes]:
        while rest:
            if self._member is None:
                rest = rest.lstrip(b"\0")  # a file may be padded
                if not rest or self._start is None:
                    return
                self._members += 1
                _check_members(self._members, self._received)
                self._member = self._start()
            yield self._member.decompress(rest)
            rest = self._member.unused_data
            if self._member.eof:
                self._member = None


def _encoding_error(encoding: str, reason: object) -> RequestError:
    if encoding == "zstd" and "too much memory" in str(reason):
        window = f"its window has more than {LARGEST_WINDOW >> 20} MiB, which HTTP does not allow (RFC 9659)"
        return RequestError(400, f"the zstd frame cannot be unpacked: {window}; compress at level 19 or less, and without --long")
    return RequestError(400, f"the body is not {encoding}, which its content-encoding says: {str(reason)[:100]}")


def _gzip_member() -> Any:
    return zlib.decompressobj(wbits=31)


def _zstd() -> zstandard.ZstdDecompressor:
    return zstandard.ZstdDecompressor(max_window_size=LARGEST_WINDOW)


def _check_members(n_members: int, n_bytes: int) -> None:
    if n_members > MOST_SMALL_MEMBERS + n_bytes // MEMBER_BYTES:
        raise RequestError(400, f"{n_bytes} bytes of the body begin {n_members} gzip members or zstd frames: compress it as one")


def _gunzip(body: bytearray, limit: int) -> bytearray:
    unpacked = bytearray()
    rest = bytes(body)
    for _ in range(MOST_MEMBERS):
        member = zlib.decompressobj(wbits=31)  # gzip
        unpacked += member.decompress(rest, limit + 1 - len(unpacked))
        _check_size(unpacked, limit)
        if not member.eof:
            raise zlib.error("it ends too early")
        rest = member.unused_data.lstrip(b"\0")
        if not rest:
            return unpacked
    raise zlib.error(f"it has more than {MOST_MEMBERS} members")


def _unzstd(body: bytearray, limit: int) -> bytearray:
    _check_frames(body)
    unpacked = bytearray()
    with _zstd().stream_reader(bytes(body), read_across_frames=True) as stream:
        while piece := stream.read(PIECE):
            unpacked += piece
            _check_size(unpacked, limit)
    if zstandard.frame_content_size(bytes(body[:ZSTD_HEADER])) > len(unpacked):
        raise zstandard.ZstdError("it ends too early")
    return unpacked


def _check_frames(body: bytearray) -> None:
    """Count the frames before they are unpacked, in windows, so that no step holds the interpreter lock for long."""
    n_frames = 0
    for start in range(0, len(body), PIECE):
        n_frames += sum(body.count(magic, start, start + PIECE + len(magic) - 1) for magic in ZSTD_MAGIC)
        _check_members(n_frames, min(start + PIECE, len(body)))


def _check_size(unpacked: bytearray, limit: int) -> None:
    if len(unpacked) > limit:
        raise RequestError(413, f"the body unpacks to more than the limit of {limit} bytes: send fewer or shorter documents")


_UNPACKERS: Mapping[str, Callable[[bytearray, int], bytearray]] = {"gzip": _gunzip, "x-gzip": _gunzip, "zstd": _unzstd}
