"""The tables of the embedded store, and their changes within a transaction.

There are four tables: the documents by key; an entry for each with its age and its expiry; and two indexes, by age and by expiry. A
fifth holds the format.

A document that is read becomes young again. That is kept in memory and written with the next change, since otherwise every read
would cost a disk write. A kill makes documents look older than they are, but loses none.
"""

import struct
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

import lmdb

from service.store.base import Item

TABLES = (b"documents", b"entries", b"ages", b"expiries", b"about")
MOST_TOUCHED = 50_000  # documents whose reading is remembered until the next change
SWEPT_AT_ONCE = 1000  # largest number of expired documents that a change removes
_ENTRY = struct.Struct(">QQ")  # age, expiry; an index's keys begin with one of them, so that the smallest comes first
Change: TypeAlias = "lmdb.Transaction[bytes]"


class Tables:
    """The tables of one environment.

    Attributes:
        documents, entries, ages, expiries, about: LMDB's handles.
        evicted: number of documents removed to make room.
    """

    def __init__(self, environment: lmdb.Environment) -> None:
        self.documents, self.entries, self.ages, self.expiries, self.about = map(environment.open_db, TABLES)
        self.evicted = 0
        self._touched: dict[bytes, None] = {}
        self._touching = threading.Lock()
        self._last_age = 0

    def n_bytes(self, txn: Change) -> int:
        """Bytes of the tables, in whole pages, in this transaction."""
        stats = [txn.stat(table) for table in (self.documents, self.entries, self.ages, self.expiries)]
        return sum(stat["psize"] * (stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"]) for stat in stats)

    def put(self, txn: Change, key: bytes, item: Item) -> None:
        """Store a document; it replaces the one of this key."""
        self.remove(txn, key)
        entry = _ENTRY.pack(self._age(), item.expires)
        txn.put(key, item.content, db=self.documents)
        txn.put(key, entry, db=self.entries)
        txn.put(entry[:8] + key, b"", db=self.ages)
        if item.expires:
            txn.put(entry[8:] + key, b"", db=self.expiries)

    def remove(self, txn: Change, key: bytes) -> bool:
        """Remove a document. Returns whether there was one."""
        entry = txn.pop(key, db=self.entries)
        if entry is None:
            return False
        txn.delete(key, db=self.documents)
        txn.delete(entry[:8] + key, db=self.ages)
        txn.delete(entry[8:] + key, db=self.expiries)
        return True

    def expired(self, txn: Change, key: bytes) -> bool:
        """Whether a document has expired."""
        expires: int = _ENTRY.unpack(txn.get(key, bytes(_ENTRY.size), db=self.entries))[1]
        return 0 < expires <= time.time() * 1000

    def sweep(self, txn: Change) -> None:
        """Remove expired documents, up to SWEPT_AT_ONCE."""
        now = struct.pack(">Q", int(time.time() * 1000))
        for index in _first(txn, self.expiries, SWEPT_AT_ONCE):
            if index[:8] > now:
                return
            self.remove(txn, index[8:])

    def shrink(self, txn: Change, capacity: int) -> None:
        """Remove the documents used longest ago, until the rest take at most `capacity` bytes."""
        while self.n_bytes(txn) > capacity and (indexes := list(_first(txn, self.ages, 16))):
            for index in indexes:
                if self.n_bytes(txn) <= capacity:
                    return
                self.remove(txn, index[8:])
                self.evicted += 1

    def _age(self) -> int:
        """Microseconds since 1970; each call gives a later time, even if the clock is set back."""
        self._last_age = max(int(time.time() * 1e6), self._last_age + 1)
        return self._last_age

    def touch(self, keys: Sequence[bytes]) -> None:
        """Note that these documents were read."""
        with self._touching:
            for key in keys:
                self._touched.pop(key, None)
                self._touched[key] = None
            while len(self._touched) > MOST_TOUCHED:
                del self._touched[next(iter(self._touched))]

    def apply_touches(self, txn: Change) -> None:
        """Make the documents read since the last change the youngest, in the order in which they were read."""
        with self._touching:
            touched, self._touched = self._touched, {}
        for key in touched:
            if (entry := txn.get(key, db=self.entries)) is not None:
                young = struct.pack(">Q", self._age()) + entry[8:]
                txn.put(key, young, db=self.entries)
                txn.delete(entry[:8] + key, db=self.ages)
                txn.put(young[:8] + key, b"", db=self.ages)


def _first(txn: Change, table: Any, at_most: int) -> Iterator[bytes]:
    """The first keys of a table; the caller may remove them on the way."""
    with txn.cursor(table) as cursor:
        keys = [key for key, _ in zip(cursor.iternext(values=False), range(at_most), strict=False)]
    return iter(keys)
