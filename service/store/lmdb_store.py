"""The embedded store: LMDB in a directory, for one service. Acknowledged documents are on the disk.

A change is one transaction, and LMDB never overwrites the state before it, so a process may be killed at any time.

There are four tables: the documents by key; an entry for each with its age and its expiry; and two indexes, by age and by expiry. A
fifth holds the format, and a note of each document that is still unread.

A document that is read becomes young again. That is kept in memory and written with the next change, since otherwise every read
would cost a disk write. A kill makes documents look older than they are, but loses none.
"""

import errno
import json
import logging
import os
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import lmdb

from keyblock.lock import locked
from service.store.base import DocumentStore, Item, Renewal, Size, StoreFullError, StoreUnavailableError

log = logging.getLogger(__name__)
FORMAT = b"1"
SLACK = 64 << 20  # bytes of the file beyond the cap and a quarter of it: pages that readers and a change in hand still need
LARGEST_SHARE = 4  # a document larger than a quarter of the store would push out too many others
MOST_TRIES = 4  # of a change that finds no room although other documents were removed for it
MOST_READERS = 64  # threads that read at the same time
LOCK_BYTES, READER_BYTES = 4096, 64  # of LMDB's lock file: its head, rounded up, and each reader
_KEY_BYTES = 20
_NOTE = b"unread/"  # begins the keys of notes
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # LMDB gives the last one for a write that was cut short

TABLES = (b"documents", b"entries", b"ages", b"expiries", b"about")
MOST_TOUCHED = 50_000  # documents whose reading is remembered until the next change
SWEPT_AT_ONCE = 1000  # largest number of expired documents that a change removes
_ENTRY = struct.Struct(">QQ")  # age, expiry; an index's keys begin with one of them, so that the smallest comes first

Change: TypeAlias = "lmdb.Transaction[bytes]"
T = TypeVar("T")


class LmdbStore(DocumentStore):
    """Documents in a directory, which is made if it is missing.

    Args:
        directory: for this service alone; a second one is refused.
        capacity: bytes that the documents may take.
        evict: whether new documents replace those used longest ago; otherwise a full store refuses them.

    Raises StoreUnavailableError, one line, when the directory cannot be used.
    """

    kind = "lmdb"

    def __init__(self, directory: Path, capacity: int, *, evict: bool = False) -> None:
        self._directory = directory
        self._capacity = capacity
        self.largest = capacity // LARGEST_SHARE
        self._evict = evict
        another = StoreUnavailableError(
            f"{directory}: another process uses this store; give each replica a directory of its own, or all of them one Redis"
        )
        with ExitStack() as stack:
            with _clear_errors(directory):
                stack.enter_context(locked(directory, another))
                self._environment = _open_environment(directory, capacity)
                self._tables = Tables(self._environment)
                self._check_format()
            self._lock = stack.pop_all()

    def sizes(self, namespace: str, ids: Sequence[str]) -> list[int]:
        """See DocumentStore."""
        with _clear_errors(self._directory), self._environment.begin(db=self._tables.documents, buffers=True) as view:
            return [len(view.get(_key(namespace, identity), b"")) for identity in ids]

    def get_many(self, namespace: str, ids: Sequence[str]) -> list[bytes | None]:
        """See DocumentStore."""
        keys = [_key(namespace, identity) for identity in ids]
        with _clear_errors(self._directory), self._environment.begin(db=self._tables.documents) as view:
            found = [None if self._tables.expired(view, key) else view.get(key) for key in keys]
        if self._evict:
            self._tables.touch([key for key, content in zip(keys, found, strict=True) if content is not None])
        return found

    def put_many(self, namespace: str, items: Sequence[Item]) -> None:
        """See DocumentStore."""
        self.renew_many(namespace, [Renewal(b"", item) for item in items])  # it fits whatever is there

    def renew_many(self, namespace: str, renewals: Sequence[Renewal]) -> None:
        """See DocumentStore."""
        for _, item in renewals:
            if len(item.content) > self.largest:
                raise StoreFullError(
                    f"a document takes {len(item.content)} bytes; a store of {self._capacity} bytes keeps none over {self.largest}"
                )

        def change(txn: Change) -> None:
            for head, item in renewals:
                key = _key(namespace, item.id)
                if not head or (txn.get(key, db=self._tables.documents) or b"").startswith(head):
                    self._tables.put(txn, namespace, item)

        self._change(change, sum(len(item.content) for _, item in renewals))

    def unread(self) -> list[tuple[str, str]]:
        """See DocumentStore."""
        with _clear_errors(self._directory), self._environment.begin() as view:
            return list(self._tables.notes(view))

    def delete(self, namespace: str, identity: str) -> bool:
        """See DocumentStore."""
        key = _key(namespace, identity)

        def change(txn: Change) -> bool:
            expired = self._tables.expired(txn, key)
            return self._tables.remove(txn, key) and not expired

        return self._change(change, 0, bounded=False)

    def size(self) -> Size:
        """See DocumentStore."""
        with _clear_errors(self._directory), self._environment.begin() as view:
            return Size(view.stat(self._tables.entries)["entries"], self._tables.n_bytes(view), self._tables.evicted)

    def about(self) -> dict[str, Any]:
        """See DocumentStore."""
        return {"kind": self.kind, "capacity_bytes": self._capacity, "evict": self._evict}

    def close(self) -> None:
        """See DocumentStore."""
        self._environment.close()
        self._lock.close()

    def _check_format(self) -> None:
        with self._environment.begin(write=True, db=self._tables.about) as txn:
            if (found := txn.get(b"format", FORMAT)) != FORMAT:
                written = found.decode("ascii", "replace")[:20]
                raise StoreUnavailableError(
                    f"{self._directory}: was written in format {written}, and this version reads {FORMAT.decode()}; "
                    "update KeyBlock, or give another directory"
                )
            txn.put(b"format", FORMAT, overwrite=False)  # no write where it is there: a full disk can be started from

    def _change(self, change: Callable[[Change], T], n_bytes: int, *, bounded: bool = True) -> T:
        """Make a change in one transaction. If it finds no room, make room for `n_bytes` and try again."""
        for _ in range(MOST_TRIES):
            try:
                return self._transaction(change, bounded=bounded)
            except lmdb.MapFullError:  # there is room, but in pieces, or readers or the last transaction still hold it
                if not self._evict:
                    break
                self._make_room(max(n_bytes, self._capacity // 16))
        raise self._full()

    def _make_room(self, n_bytes: int) -> None:
        with suppress(lmdb.MapFullError):
            self._transaction(lambda txn: self._tables.shrink(txn, self._tables.n_bytes(txn) - n_bytes), bounded=False)

    def _transaction(self, change: Callable[[Change], T], *, bounded: bool) -> T:
        with _clear_errors(self._directory), self._environment.begin(write=True) as txn:
            self._tables.sweep(txn)
            if self._evict and self._tables.n_bytes(txn) > self._capacity // 2:  # below that, ages do not matter
                self._tables.apply_touches(txn)
            result = change(txn)
            if bounded and self._tables.n_bytes(txn) > self._capacity:
                if not self._evict:
                    raise self._full()
                self._tables.shrink(txn, self._capacity)
            return result

    def _full(self) -> StoreFullError:
        return StoreFullError(
            f"the store is full: its documents may take {self._capacity} bytes; delete some, raise KEYBLOCK_STORE_BYTES, "
            "or let KEYBLOCK_STORE_EVICT=true forget those used longest ago"
        )


def _key(namespace: str, identity: str) -> bytes:
    """A key of fixed length, since LMDB's keys must be short and ids may be long."""
    parts = [part.encode("utf-8", "surrogatepass") for part in (namespace, identity)]
    return blake2b(len(parts[0]).to_bytes(4, "little") + b"".join(parts), digest_size=_KEY_BYTES).digest()


def _open_environment(directory: Path, capacity: int) -> lmdb.Environment:
    size = capacity + capacity // 4 + SLACK
    data = directory / "data.mdb"
    is_new = not data.exists()
    _allocate(directory / "lock.mdb", LOCK_BYTES + MOST_READERS * READER_BYTES)
    try:
        environment = lmdb.open(str(directory), map_size=size, max_dbs=len(TABLES), max_readers=MOST_READERS)
    except lmdb.Error:
        if is_new:
            data.unlink(missing_ok=True)  # with the first of its two heads alone no later start could open it
        raise
    _lengthen(data, (environment.info()["last_pgno"] + 1) * environment.stat()["psize"])
    environment.reader_check()  # readers of a killed process would hold old pages for ever
    entry = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(entry)  # makes the files themselves survive a power cut
    finally:
        os.close(entry)
    return environment


def _lengthen(file: Path, size: int) -> None:
    """Restore the length of a file that was cut: a missing page would end the process, while a page of zeros is an error."""
    if (found := file.stat().st_size) < size:
        log.warning("%s has %d bytes where %d are in use: documents that stood in the rest are damaged", file, found, size)
        _allocate(file, size)


def _allocate(file: Path, size: int) -> None:
    """Lengthen a mapped file to `size` bytes, all on the disk: a page without room there would end the process (SIGBUS)."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.posix_fallocate(descriptor, 0, size)
    finally:
        os.close(descriptor)


@contextmanager
def _clear_errors(directory: Path) -> Iterator[None]:
    """Turn errors of LMDB and the system into one line with advice."""
    try:
        yield
    except lmdb.MapFullError:
        raise
    except (lmdb.Error, OSError) as error:
        number = error.errno if isinstance(error, OSError) else error.code
        if number in _FULL:
            raise StoreFullError(f"{directory}: the disk is full, or fails; make room on it") from None
        reason = error.strerror if isinstance(error, OSError) else error.reason
        raise StoreUnavailableError(
            f"{directory}: cannot be used as a store ({reason}); give a directory that may be written, on a local disk"
        ) from None


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

    def put(self, txn: Change, namespace: str, item: Item) -> None:
        """Store a document; it replaces the one of its id. An unread one is noted until it is replaced or removed."""
        key = _key(namespace, item.id)
        self.remove(txn, key)
        entry = _ENTRY.pack(self._age(), item.expires)
        txn.put(key, item.content, db=self.documents)
        txn.put(key, entry, db=self.entries)
        txn.put(entry[:8] + key, b"", db=self.ages)
        if item.expires:
            txn.put(entry[8:] + key, b"", db=self.expiries)
        if item.unread:
            txn.put(_NOTE + key, json.dumps([namespace, item.id]).encode(), db=self.about)

    def remove(self, txn: Change, key: bytes) -> bool:
        """Remove a document. Returns whether there was one."""
        entry = txn.pop(key, db=self.entries)
        if entry is None:
            return False
        txn.delete(key, db=self.documents)
        txn.delete(entry[:8] + key, db=self.ages)
        txn.delete(entry[8:] + key, db=self.expiries)
        txn.delete(_NOTE + key, db=self.about)
        return True

    def notes(self, txn: Change) -> Iterator[tuple[str, str]]:
        """Namespace and id of each unread document."""
        with txn.cursor(self.about) as cursor:
            cursor.set_range(_NOTE)
            for key, value in cursor:
                if not key.startswith(_NOTE):
                    return
                namespace, identity = json.loads(value)
                yield namespace, identity

    def expired(self, txn: Change, key: bytes) -> bool:
        """Whether a document has expired."""
        expires: int = _ENTRY.unpack(txn.get(key, bytes(_ENTRY.size), db=self.entries))[1]
        return 0 < expires <= time.time() * 1000

    def sweep(self, txn: Change) -> None:
        """Remove expired documents, up to SWEPT_AT_ONCE."""
        now = struct.pack(">Q", int(time.time() * 1000))
        for _ in range(SWEPT_AT_ONCE):
            index = _first(txn, self.expiries)
            if index is None or index[:8] > now:
                return
            self.remove(txn, index[8:])

    def shrink(self, txn: Change, capacity: int) -> None:
        """Remove the documents used longest ago, until the rest take at most `capacity` bytes."""
        while self.n_bytes(txn) > capacity and (index := _first(txn, self.ages)) and self.remove(txn, index[8:]):
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


def _first(txn: Change, table: Any) -> bytes | None:
    """The first key of a table."""
    with txn.cursor(table) as cursor:
        return cursor.key() if cursor.first() else None
