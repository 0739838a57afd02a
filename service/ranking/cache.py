"""Prepared documents that were seen before."""

from hashlib import blake2b

from keyblock.prepared import PreparedDocument
from service.lru import Lru

ENTRY_BYTES = 1400  # what an entry costs beside its arrays' data: seven array headers, the key, the table


def content_key(text: str, title: str, prepared_by: bytes = b"") -> bytes:
    """A key of what a document says and of what prepares it (at most 16 bytes); titles and texts cannot run into each other."""
    digest = blake2b(len(title).to_bytes(8, "little"), digest_size=16, salt=prepared_by)
    for part in (title, text):
        digest.update(part.encode("utf-8", "surrogatepass"))
    return digest.digest()


class DocumentCache(Lru[PreparedDocument]):
    """One for all models, whose documents have keys of their own unless they are prepared alike. Safe to use from several threads.

    Args:
        capacity: bytes; 0 keeps nothing.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, _cost)


def _cost(document: PreparedDocument) -> int:
    return document.nbytes + ENTRY_BYTES
