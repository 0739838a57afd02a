"""Turns a stored document into bytes and back: id, title, text and preparation, in the narrowest integers that hold it; sealed.

The head names the writer and differs for each write: version (1 byte), CRC-32 of all that follows it (4), a random revision (4),
fingerprint of the preparation (16), expiry (8). Then come the lengths of the parts (4 bytes each), and the parts: id, title, the
text compressed by zstd, and seven arrays. The last array, the terms, has 64 bits; each other array begins with the width of its
integers. A document with vectors has version 2 and one more part at the end: their dimensions (2 bytes), and the vectors of its
blocks, a byte for each number.

A seal makes sure that a user of the same Redis without the key cannot forge a value that the service accepts. It is an HMAC-SHA256
over the namespace, the id and the value, so a value cannot pass for another document's either. It does not cover the value's age:
a user with write access can restore an earlier value of the same document, or delete it.
"""

import hashlib
import hmac
import os
import struct
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import NamedTuple

import numpy as np
import zstandard
from numpy.typing import NDArray

from keyblock.prepared import PreparedDocument
from service.store.base import HEAD, StoreError

VERSION, WITH_VECTORS = 1, 2
_START = struct.Struct("<BI")  # version, checksum
_REST = struct.Struct("<4s16sQ")  # revision, fingerprint, expiry
_LENGTHS = {VERSION: struct.Struct("<10I"), WITH_VECTORS: struct.Struct("<11I")}
_DIMENSIONS = struct.Struct("<H")
_UNSIGNED = {width: np.dtype(f"<u{width}") for width in (1, 2, 4)}
_ZSTD_HEAD = 18  # largest size of a frame's header in bytes
_LEVEL = 1  # of zstd: higher levels cost more time than they save space
SEAL_BYTES = 32
Check = Callable[[PreparedDocument], object]
"""Raises ValueError for a document that cannot be used."""


class DamagedError(StoreError):
    """The bytes are not a stored document of this version."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredDocument:
    """A document with everything that is stored of it.

    Attributes:
        fingerprint: of the preparation, 16 bytes.
        expires: milliseconds since 1970; 0 for never.
        packed_text: compressed; see `text`.
        head: of the bytes from which it was read; empty for a new one.
    """

    id: str
    title: str
    packed_text: bytes
    prepared: PreparedDocument
    fingerprint: bytes
    expires: int = 0
    head: bytes = b""

    @property
    def text(self) -> str:
        """The text as it was sent. Raises DamagedError."""
        try:
            return zstandard.decompress(self.packed_text).decode("utf-8", "surrogatepass")
        except (zstandard.ZstdError, UnicodeDecodeError) as error:
            raise DamagedError(f"a stored document is damaged: its text cannot be unpacked ({error})") from None


def pack_text(text: str) -> bytes:
    """Compress a text."""
    return zstandard.compress(text.encode("utf-8", "surrogatepass"), _LEVEL)


def encode(document: StoredDocument) -> bytes:
    """The document as bytes; they differ for each call."""
    parts = [document.id.encode("utf-8", "surrogatepass"), document.title.encode("utf-8", "surrogatepass"), document.packed_text]
    prepared = document.prepared
    arrays = (prepared.token_ids, prepared.bounds, prepared.starts, prepared.ends, prepared.term_bounds, prepared.title_ids)
    parts += [*map(_narrowed, arrays), prepared.terms.astype("<i8").tobytes()]
    version = VERSION
    if prepared.vectors is not None:
        version = WITH_VECTORS
        parts.append(_DIMENSIONS.pack(prepared.vectors.shape[1]) + prepared.vectors.tobytes())
    rest = _REST.pack(os.urandom(4), document.fingerprint, document.expires)
    body = b"".join((rest, _LENGTHS[version].pack(*map(len, parts)), *parts))
    return _START.pack(version, zlib.crc32(body)) + body


def fingerprint_of(content: bytes) -> bytes:
    """The fingerprint in the head of a stored document."""
    return content[_START.size + 4 : _START.size + 20]


def decoded_bytes(content: bytes | memoryview, *, text: bool) -> int:
    """Bytes that the document takes when decoded, according to its head; 0 if `decode` refuses it.

    Args:
        content: from a store.
        text: whether its text is unpacked too.
    """
    try:
        parts = _parts(content)
        (id_part, title, packed, *arrays, terms), vectors = parts[:10], parts[10:]
        unpacked = max(zstandard.frame_content_size(bytes(packed[:_ZSTD_HEAD])), 0) if text else 0
        widened = sum(4 * (len(part) - 1) // part[0] for part in arrays)
    except (DamagedError, IndexError, ZeroDivisionError, zstandard.ZstdError):
        return 0
    return len(id_part) + len(title) + len(packed) + unpacked + widened + len(terms) + sum(map(len, vectors))


def decode(content: bytes) -> StoredDocument:
    """The document that `encode` got. Raises DamagedError for other bytes, even with a correct checksum."""
    parts = _parts(content)
    _, checksum = _START.unpack_from(content)
    if zlib.crc32(memoryview(content)[_START.size :]) != checksum:
        raise DamagedError("a stored document is damaged: its checksum is another")
    _, fingerprint, expires = _REST.unpack_from(content, _START.size)
    try:
        identity, title = (str(part, "utf-8", "surrogatepass") for part in parts[:2])
        prepared = _prepared(parts[3:])
    except (ValueError, LookupError) as error:
        raise DamagedError(f"a stored document was not written by KeyBlock ({error})") from None
    return StoredDocument(identity, title, bytes(parts[2]), prepared, fingerprint, expires, content[:HEAD])


def _parts(content: bytes | memoryview) -> list[memoryview]:
    """The parts of a document, without copying. Raises DamagedError if they are not as long as the head says."""
    if not content:
        raise DamagedError("a stored document is damaged: it has 0 bytes")
    if content[0] not in _LENGTHS:
        raise DamagedError(f"a stored document is of format {content[0]}, and this version reads {VERSION} and {WITH_VECTORS}")
    packed = _LENGTHS[content[0]]
    if len(content) < HEAD + packed.size:
        raise DamagedError(f"a stored document is damaged: it has {len(content)} bytes")
    ends = list(accumulate(packed.unpack_from(content, HEAD), initial=HEAD + packed.size))
    if ends[-1] != len(content):
        raise DamagedError(f"a stored document is damaged: it has {len(content)} bytes, and its head says {ends[-1]}")
    view = memoryview(content)
    return [view[start:end] for start, end in pairwise(ends)]


def _prepared(parts: list[memoryview]) -> PreparedDocument:
    """The prepared document. Raises ValueError or LookupError if the arrays cannot come from a preparation."""
    token_ids, bounds, starts, ends, term_bounds, title_ids = map(_widened, parts[:6])
    terms = np.frombuffer(parts[6], "<i8").copy()  # unaligned numbers would be copied for each query
    vectors = _vectors(parts[7], len(starts)) if parts[7:] else None
    prepared = PreparedDocument(token_ids, bounds.reshape(-1, 2), starts, ends, terms, term_bounds, title_ids, vectors)
    _check_arrays(prepared)
    return prepared


def _vectors(part: memoryview, n_blocks: int) -> NDArray[np.int8]:
    """The vectors. Raises ValueError if their number is not that of the blocks."""
    if len(part) < _DIMENSIONS.size:
        raise ValueError("vectors have no dimensions")
    (dimensions,) = _DIMENSIONS.unpack_from(part)
    return np.frombuffer(part, np.int8, offset=_DIMENSIONS.size).reshape(n_blocks, dimensions)


def _check_arrays(prepared: PreparedDocument) -> None:
    """Raise ValueError if the arrays do not belong together."""
    n, bounds, term_bounds = prepared.n_blocks, prepared.bounds, prepared.term_bounds
    conditions = {
        "blocks and their places differ in number": len(prepared.starts) == len(prepared.ends) == n == len(term_bounds) - 1,
        "a block lies outside the tokens": not n or (bounds.min() >= 0 and bounds.max() <= len(prepared.token_ids)),
        "a block ends before it starts": bool((bounds[:, 0] <= bounds[:, 1]).all()),
        "an id of a token is negative": prepared.token_ids.min(initial=0) >= 0 and prepared.title_ids.min(initial=0) >= 0,
        "terms are not the blocks'": len(term_bounds) > 0
        and term_bounds[0] == 0
        and term_bounds[-1] == len(prepared.terms)
        and bool((np.diff(term_bounds) >= 0).all()),
    }
    if wrong := [problem for problem, holds in conditions.items() if not holds]:
        raise ValueError(wrong[0])
    places = np.stack([prepared.starts, prepared.ends])
    if n and (places.min() < 0 or (places[0] > places[1]).any()):
        raise ValueError("a block has no place in the text")


def _narrowed(array: NDArray[np.int32]) -> bytes:
    largest = int(array.max(initial=0))
    width = 1 if largest < 1 << 8 else 2 if largest < 1 << 16 else 4
    return bytes([width]) + array.astype(_UNSIGNED[width]).tobytes()


def _widened(part: memoryview) -> NDArray[np.int32]:
    return np.frombuffer(part, _UNSIGNED[part[0]], offset=1).astype(np.int32)


class Seal:
    """Seals and opens values.

    Args:
        key: shared by the replicas, too long to guess; empty: values are not sealed.
    """

    def __init__(self, key: str = "") -> None:
        self._key = key.encode()

    @property
    def extra_bytes(self) -> int:
        """Bytes that the seal adds to a value."""
        return SEAL_BYTES if self._key else 0

    def sealed(self, namespace: str, identity: str, content: bytes) -> bytes:
        """The value, followed by its seal."""
        return content + self._seal(namespace, identity, content) if self._key else content

    def opened(self, namespace: str, identity: str, content: bytes) -> bytes:
        """The value without its seal. Raises DamagedError if the seal does not fit the key, namespace, id and value."""
        if not self._key:
            return content
        value, seal = content[:-SEAL_BYTES], content[-SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._seal(namespace, identity, value)):
            raise DamagedError("a stored document was not sealed with this service's KEYBLOCK_STORE_KEY")
        return value

    def _seal(self, namespace: str, identity: str, content: bytes) -> bytes:
        names = [part.encode("utf-8", "surrogatepass") for part in (namespace, identity)]
        made = hmac.new(self._key, digestmod=hashlib.sha256)
        for name in names:
            made.update(len(name).to_bytes(4, "little") + name)
        made.update(content)
        return made.digest()


class Found(NamedTuple):
    """A document of the store.

    Attributes:
        text: if it is needed, or another pipeline has prepared the document; otherwise None.
        stale: whether another pipeline has prepared the document.
    """

    stored: StoredDocument
    text: str | None
    stale: bool
