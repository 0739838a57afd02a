"""Prepared documents that were seen before, the least recently used forgotten first, bounded by their bytes."""

import threading
from collections import OrderedDict
from hashlib import blake2b

from keyblock.prepared import PreparedDocument

ENTRY_BYTES = 1400  # what an entry costs beside its arrays' data: seven array headers, the key, the table
LARGEST_SHARE = 8  # a document larger than an eighth of the cache would push out too much


def content_key(text: str, title: str, prepared_by: bytes = b"") -> bytes:
    """A key of what a document says and of what prepares it (at most 16 bytes); titles and texts cannot run into each other."""
    digest = blake2b(len(title).to_bytes(8, "little"), digest_size=16, salt=prepared_by)
    for part in (title, text):
        digest.update(part.encode("utf-8", "surrogatepass"))
    return digest.digest()


class DocumentCache:
    """One for all models, whose documents have keys of their own unless they are prepared alike. Safe to use from several threads.

    Args:
        capacity: bytes; 0 keeps nothing.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.nbytes = 0
        self._documents: OrderedDict[bytes, PreparedDocument] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._documents)

    def get(self, key: bytes) -> PreparedDocument | None:
        """The document, which counts as used, or None."""
        with self._lock:
            document = self._documents.get(key)
            if document is not None:
                self._documents.move_to_end(key)
            return document

    def put(self, key: bytes, document: PreparedDocument) -> None:
        """Keep the document, if it is not too large, and forget others where room is needed."""
        cost = _cost(document)
        if cost * LARGEST_SHARE > self.capacity:
            return
        with self._lock:
            replaced = self._documents.pop(key, None)
            self.nbytes += cost - (_cost(replaced) if replaced is not None else 0)
            self._documents[key] = document
            while self.nbytes > self.capacity:
                _, forgotten = self._documents.popitem(last=False)
                self.nbytes -= _cost(forgotten)


def _cost(document: PreparedDocument) -> int:
    return document.nbytes + ENTRY_BYTES
