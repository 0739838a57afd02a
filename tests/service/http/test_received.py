"""What a client may send of a request, counted by hand; test_connection.py sends it through sockets."""

from collections.abc import Callable

import pytest

from service.errors import RequestError
from service.http.received import HEAD_BYTES, MOST_HEADERS, MOST_SMALL_CHUNKS, SMALL_CHUNK, Received


def refused(call: Callable[[], None]) -> int:
    with pytest.raises(RequestError) as error:
        call()
    return error.value.status


def test_each_head_has_its_own_limits_of_bytes_and_headers() -> None:
    received = Received()
    for _ in range(2):
        received.begin()
        received.head_piece(HEAD_BYTES - 2)
        received.header(1, MOST_HEADERS - 1)
        assert refused(lambda: received.header(1, MOST_HEADERS)) == 431
        assert refused(lambda: received.head_piece(1)) == 431


def test_chunks_may_be_small_until_there_are_many() -> None:
    received = Received()
    received.head()
    for _ in range(MOST_SMALL_CHUNKS):
        received.chunk()
    assert refused(received.chunk) == 400
    received.body_piece(2 * SMALL_CHUNK)
    received.chunk()
    assert refused(received.chunk) == 400


def test_what_is_beside_a_body_counts_between_its_pieces() -> None:
    received = Received()
    received.overhead = HEAD_BYTES + 1
    assert refused(received.check_overhead) == 431, "of a head"
    received.head()
    received.overhead += HEAD_BYTES
    received.check_overhead()
    received.overhead += 1
    assert refused(received.check_overhead) == 400, "of a body"
    received.body_piece(1)
    received.check_overhead()
