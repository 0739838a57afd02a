"""A cache of prepared documents."""

from hashlib import blake2b

from keyblock.prepared import PreparedDocument
from service.lru import Lru

ENTRY_BYTES = 1400  # of an entry without its arrays' data: seven array headers, the key, the table


def content_key(text: str, title: str, prepared_by: bytes = b"") -> bytes:
    """A key of the document's content and of the preparer's fingerprint (at most 16 bytes); title and text cannot run together."""
    digest = blake2b(len(title).to_bytes(8, "little"), digest_size=16, salt=prepared_by)
    for part in (title, text):
        digest.update(part.encode("utf-8", "surrogatepass"))
    return digest.digest()


class DocumentCache(Lru[PreparedDocument]):
    """One cache for all models. Models share an entry only if they prepare alike. Safe to use from several threads.

    Args:
        capacity: bytes; 0 keeps nothing.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, _cost)


def _cost(document: PreparedDocument) -> int:
    return document.nbytes + ENTRY_BYTES
