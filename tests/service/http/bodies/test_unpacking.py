import gzip
import random
import time

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from service.errors import RequestError
from service.http.bodies.parsing import LARGEST_WINDOW, MEMBER_BYTES, MOST_SMALL_MEMBERS, Unpacking, unpack

LIMIT = 1000
ENCODINGS = ["gzip", "x-gzip", "zstd"]


def packed(content: bytes, encoding: str) -> bytearray:
    return bytearray(zstandard.ZstdCompressor().compress(content) if encoding == "zstd" else gzip.compress(content))


def test_several_members_or_frames_follow_each_other() -> None:
    for encoding in ENCODINGS:
        assert unpack(packed(b"ab", encoding) + packed(b"cd", encoding), encoding, LIMIT) == b"abcd"
    assert unpack(packed(b"ab", "gzip") + b"\0\0", "gzip", LIMIT) == b"ab"


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_bomb_stops_at_the_limit(encoding: str) -> None:
    assert unpack(packed(b"x" * LIMIT, encoding), encoding, LIMIT) == b"x" * LIMIT
    one_too_many = packed(b"x" * LIMIT, encoding) + packed(b"x", encoding)
    for body in (packed(b"x" * (LIMIT + 1), encoding), packed(b"x" * 50_000_000, encoding), one_too_many):
        assert unpack(body, encoding, LIMIT) is None


def test_a_body_that_ends_too_early_or_is_not_packed() -> None:
    for content, encoding in ((b"river" * 100, "gzip"), (bytes(range(256)), "zstd")):
        with pytest.raises(RequestError, match="ends too early"):
            unpack(packed(content, encoding)[:-9], encoding, LIMIT)
        with pytest.raises(RequestError, match="the body is not"):
            unpack(bytearray(b"plain"), encoding, LIMIT)


@pytest.mark.parametrize("member", [packed(b"", "gzip"), packed(b"", "zstd"), bytearray(b"\x5f\x2a\x4d\x18\1\0\0\0x")])
def test_countless_members_are_refused_before_they_cost_time(member: bytearray) -> None:
    """A frame of nine bytes takes as long as a kilobyte of text, and most of that in steps of Python."""
    encoding = "gzip" if member.startswith(b"\x1f") else "zstd"
    body = bytes(member * (2 * MOST_SMALL_MEMBERS))
    began = time.process_time()
    with pytest.raises(RequestError, match=r"begin 1\d\d\d gzip members or zstd frames") as caught:
        in_pieces(body * 100, encoding, 1 << 16)
    assert caught.value.status == 400
    assert time.process_time() - began < 1
    assert in_pieces(bytes(member * MOST_SMALL_MEMBERS), encoding, 100) == b""


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_member_a_line_is_read(encoding: str) -> None:
    """As clients send that compress each document by itself."""
    line = bytes(packed(random.Random(1).randbytes(2 * MEMBER_BYTES), encoding))
    assert len(in_pieces(line * 5000, encoding, 1 << 16)) == 5000 * 2 * MEMBER_BYTES


@pytest.mark.parametrize("size", [LARGEST_WINDOW, 2 * LARGEST_WINDOW])
def test_a_frame_may_have_the_window_that_http_allows(size: int) -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=size.bit_length() - 1)
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    with_size = compressor.compress(b"x" * size)
    compressing = compressor.compressobj()
    without = compressing.compress(b"x" * 100) + compressing.flush()
    if size <= LARGEST_WINDOW:
        assert unpack(bytearray(with_size), "zstd", size) == b"x" * size
        assert in_pieces(without, "zstd", 10) == b"x" * 100
        return
    for body in (with_size, without):
        with pytest.raises(RequestError, match="its window has more than 8 MiB, which HTTP does not allow") as raised:
            unpack(bytearray(body), "zstd", size)
        assert raised.value.status == 400


def in_pieces(body: bytes, encoding: str, size: int) -> bytes:
    unpacking = Unpacking(encoding)
    found = b"".join(out for start in range(0, len(body), size) for out in unpacking.feed(body[start : start + size]))
    unpacking.end()
    return found


@given(st.lists(st.binary(max_size=3000), max_size=4), st.sampled_from([*ENCODINGS, "identity"]), st.integers(1, 5000))
def test_a_stream_is_unpacked_whatever_its_pieces(contents: list[bytes], encoding: str, size: int) -> None:
    body = b"".join(content if encoding == "identity" else bytes(packed(content, encoding)) for content in contents)
    assert in_pieces(body, encoding, size) == b"".join(contents)


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_bomb_in_a_stream_comes_in_pieces_of_bounded_size(encoding: str) -> None:
    body = bytes(packed(bytes(50_000_000), encoding))
    sizes = [len(piece) for piece in Unpacking(encoding).feed(body)]
    assert sum(sizes) == 50_000_000
    assert max(sizes) <= 9 << 20
