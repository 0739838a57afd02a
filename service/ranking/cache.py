"""A cache of prepared documents."""

from keyblock.prepared import PreparedDocument
from service.lru import Lru

ENTRY_BYTES = 1400  # of an entry without its arrays' data: seven array headers, the key, the table


class DocumentCache(Lru[PreparedDocument]):
    """One cache for all models. Models share an entry only if they prepare alike. Safe to use from several threads.

    Args:
        capacity: bytes; 0 keeps nothing.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, _cost)


def _cost(document: PreparedDocument) -> int:
    return document.nbytes + ENTRY_BYTES
