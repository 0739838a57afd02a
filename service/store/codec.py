"""A stored document as bytes: id, title, text and everything that was prepared, in the narrowest integers that hold it.

The head says what wrote it and tells one writing from every other: version (1 byte), CRC-32 of all that follows it (4), a
random revision (4), fingerprint of the preparation (16), expiry (8). Then the lengths of the parts (4 bytes each), and the parts:
id, title, the text compressed by zstd, and the seven arrays, terms last, of 64 bits; the others are each led by the width of
their integers.
"""

import os
import struct
import zlib
from dataclasses import dataclass

import numpy as np
import zstandard
from numpy.typing import NDArray

from keyblock.prepared import PreparedDocument
from service.store.base import HEAD, StoreError

VERSION = 1
_START = struct.Struct("<BI")  # version, checksum
_REST = struct.Struct("<4s16sQ")  # revision, fingerprint, expiry
_LENGTHS = struct.Struct("<10I")
_UNSIGNED = {width: np.dtype(f"<u{width}") for width in (1, 2, 4)}
_LEVEL = 1  # of zstd: more costs more than it saves


class DamagedError(StoreError):
    """Bytes that are no stored document of this version."""


@dataclass(frozen=True, slots=True, eq=False)
class StoredDocument:
    """What is kept of a document.

    Attributes:
        fingerprint: of what prepared it, 16 bytes.
        expires: milliseconds since 1970; 0 for never.
        packed_text: compressed; see `text`.
        head: of the bytes it was read from; empty for one that is new.
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
        """The text as it was sent."""
        return zstandard.decompress(self.packed_text).decode("utf-8", "surrogatepass")


def pack_text(text: str) -> bytes:
    """A text compressed."""
    return zstandard.compress(text.encode("utf-8", "surrogatepass"), _LEVEL)


def encode(document: StoredDocument) -> bytes:
    """The document as bytes; no two writings of it are equal."""
    parts = [document.id.encode("utf-8", "surrogatepass"), document.title.encode("utf-8", "surrogatepass"), document.packed_text]
    prepared = document.prepared
    arrays = (prepared.token_ids, prepared.bounds, prepared.starts, prepared.ends, prepared.term_bounds, prepared.title_ids)
    parts += [*map(_narrowed, arrays), prepared.terms.astype("<i8").tobytes()]
    rest = _REST.pack(os.urandom(4), document.fingerprint, document.expires)
    body = b"".join((rest, _LENGTHS.pack(*map(len, parts)), *parts))
    return _START.pack(VERSION, zlib.crc32(body)) + body


def decode(content: bytes) -> StoredDocument:
    """What `encode` was given. Raises DamagedError."""
    if len(content) < HEAD + _LENGTHS.size:
        raise DamagedError(f"a stored document is damaged: it has {len(content)} bytes")
    version, checksum = _START.unpack_from(content)
    if version != VERSION:
        raise DamagedError(f"a stored document is of format {version}, and this version reads {VERSION}")
    if zlib.crc32(memoryview(content)[_START.size :]) != checksum:
        raise DamagedError("a stored document is damaged: its checksum is another")
    _, fingerprint, expires = _REST.unpack_from(content, _START.size)
    parts, at = [], HEAD + _LENGTHS.size
    for length in _LENGTHS.unpack_from(content, HEAD):
        parts.append(content[at : at + length])
        at += length
    identity, title = (part.decode("utf-8", "surrogatepass") for part in parts[:2])
    prepared = _prepared(parts[3:])
    return StoredDocument(identity, title, parts[2], prepared, fingerprint, expires, content[:HEAD])


def _prepared(parts: list[bytes]) -> PreparedDocument:
    token_ids, bounds, starts, ends, term_bounds, title_ids = map(_widened, parts[:-1])
    terms = np.frombuffer(parts[-1], "<i8")
    return PreparedDocument(token_ids, bounds.reshape(-1, 2), starts, ends, terms, term_bounds, title_ids)


def _narrowed(array: NDArray[np.int32]) -> bytes:
    most = int(array.max(initial=0))
    width = 1 if most < 1 << 8 else 2 if most < 1 << 16 else 4
    return bytes([width]) + array.astype(_UNSIGNED[width]).tobytes()


def _widened(part: bytes) -> NDArray[np.int32]:
    return np.frombuffer(part, _UNSIGNED[part[0]], offset=1).astype(np.int32)
