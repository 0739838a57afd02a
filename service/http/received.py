"""Limits on a request's head, and on the overhead of a body beside its bytes."""

from collections.abc import Sequence

from keyblock.ranking.warnings import LONGEST_SHOWN
from service.errors import RequestError

HEAD_BYTES = 32 * 2**10  # of a request line with its headers; also of the overhead of a body: sizes of chunks, trailers
MOST_HEADERS = 128
SMALL_CHUNK, MOST_SMALL_CHUNKS = 16, 1000  # bytes; a chunk costs the event loop as much time as a kilobyte of a larger one


class Received:
    """The part of a request that a client has sent so far. Every method raises RequestError if a limit is exceeded.

    Attributes:
        in_head: whether the head is not complete yet.
        overhead: bytes received since the last head or piece of a body was complete.
        body_bytes: of the current body.
    """

    def __init__(self) -> None:
        self.overhead = 0
        self.begin()

    def begin(self) -> None:
        """A head begins."""
        self.in_head = True
        self._head_bytes = self.body_bytes = self._chunks = 0

    def head_piece(self, n_bytes: int) -> None:
        """A piece of the URL, or a header."""
        self._head_bytes += n_bytes
        if self._head_bytes > HEAD_BYTES:
            raise too_large()

    def header(self, n_bytes: int, n_before: int) -> None:
        """A header after others; after a body it is a trailer."""
        self.head_piece(n_bytes)
        if n_before >= MOST_HEADERS:
            raise too_large(f"{MOST_HEADERS} headers")

    def head(self) -> None:
        """The head is complete."""
        self.in_head, self.overhead = False, 0

    def chunk(self) -> None:
        """A chunk of the body begins."""
        self._chunks += 1
        if self._chunks > MOST_SMALL_CHUNKS + self.body_bytes // SMALL_CHUNK:
            raise malformed(f"the body comes in {self._chunks} chunks of {self.body_bytes} bytes together: send larger ones")

    def body_piece(self, n_bytes: int) -> None:
        """A piece of the body."""
        self.overhead = 0
        self.body_bytes += n_bytes

    def check_overhead(self) -> None:
        """Check the overhead, after all received data has been parsed."""
        if self.overhead > HEAD_BYTES:
            raise too_large() if self.in_head else malformed(f"more than {HEAD_BYTES} bytes of a body are sizes of chunks")


def check_framing(version: str, headers: Sequence[tuple[bytes, bytes]]) -> None:
    """Check what decides where a request ends and whom it is for, so that a proxy in front cannot understand it differently.

    Args:
        version: of HTTP, as in "1.1".
        headers: their names in lower case.

    Raises RequestError 400, 501 for a transfer coding that is not known here, or 505 for another version.
    """
    if version not in ("1.0", "1.1"):
        raise malformed(f"HTTP/{version} is not spoken here: send HTTP/1.1", 505)
    n_hosts = sum(name == b"host" for name, _ in headers)
    if n_hosts > 1 or (n_hosts == 0 and version == "1.1"):
        raise malformed(f"the request has {n_hosts} Host headers: send one")
    codings = b",".join(value for name, value in headers if name == b"transfer-encoding").strip().lower()
    if codings and version == "1.0":
        raise malformed("HTTP/1.0 has no transfer-encoding: send HTTP/1.1")
    if codings not in (b"", b"chunked"):
        shown = codings[:LONGEST_SHOWN].decode("latin-1")
        raise malformed(f"transfer-encoding {shown!r} is not supported: send chunked, or a content-length", 501)


def too_large(most: str = f"{HEAD_BYTES} bytes") -> RequestError:
    """The error for a head that exceeds a limit."""
    return RequestError(431, f"the head of the request has more than {most}: send less in its URL and headers")


def malformed(problem: str, status: int = 400) -> RequestError:
    """The error for data that is no HTTP request, or one that no real client sends."""
    return RequestError(status, problem, kind="invalid_http")
