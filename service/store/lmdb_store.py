"""The embedded store: LMDB in a directory, for one service. Acknowledged documents are on the disk.

A change is one transaction, and LMDB never overwrites the state before it, so a process may be killed at any time.
"""

import errno
import fcntl
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, TypeVar

import lmdb

from service.store.base import DocumentStore, Item, Renewal, Size, StoreFullError, StoreUnavailableError
from service.store.lmdb_tables import TABLES, Change, Tables

log = logging.getLogger(__name__)
FORMAT = b"1"
SLACK = 64 << 20  # bytes of the file beyond the cap and a quarter of it: pages that readers and a change in hand still need
LARGEST_SHARE = 4  # a document larger than a quarter of the store would push out too many others
MOST_TRIES = 4  # of a change that finds no room although other documents were removed for it
MOST_READERS = 64  # threads that read at the same time
LOCK_BYTES, READER_BYTES = 4096, 64  # of LMDB's lock file: its head, rounded up, and each reader
_KEY_BYTES = 20
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)  # LMDB gives the last one for a write that was cut short

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
        with ExitStack() as stack:
            stack.enter_context(claimed(directory))
            with _clear_errors(directory):
                self._environment = _open_environment(directory, capacity)
                self._tables = Tables(self._environment)
                self._check_format()
            self._claim = stack.pop_all()

    def sizes(self, namespace: str, ids: Sequence[str]) -> list[int]:
        """See DocumentStore."""
        with _clear_errors(self._directory), self._environment.begin(db=self._tables.documents, buffers=True) as view:
            return [len(view.get(_key(namespace, identity), b"")) for identity in ids]

    def get_many(self, namespace: str, ids: Sequence[str]) -> list[bytes | None]:
        """See DocumentStore."""
        keys = [_key(namespace, identity) for identity in ids]
        with _clear_errors(self._directory), self._environment.begin(db=self._tables.documents) as view:
            found = [view.get(key) for key in keys]
            expired = [content is not None and self._tables.expired(view, key) for key, content in zip(keys, found, strict=True)]
        found = [None if is_expired else content for content, is_expired in zip(found, expired, strict=True)]
        if self._evict:
            self._tables.touch([key for key, content in zip(keys, found, strict=True) if content is not None])
        return found

    def put_many(self, namespace: str, items: Sequence[Item]) -> None:
        """See DocumentStore."""
        self._check_sizes(items)

        def change(txn: Change) -> None:
            for item in items:
                self._tables.put(txn, _key(namespace, item.id), item)

        self._change(change, sum(len(item.content) for item in items))

    def renew_many(self, namespace: str, renewals: Sequence[Renewal]) -> None:
        """See DocumentStore."""
        self._check_sizes([item for _, item in renewals])

        def change(txn: Change) -> None:
            for head, item in renewals:
                key = _key(namespace, item.id)
                if (txn.get(key, db=self._tables.documents) or b"").startswith(head):
                    self._tables.put(txn, key, item)

        self._change(change, sum(len(item.content) for _, item in renewals))

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
        self._claim.close()

    def _check_format(self) -> None:
        with self._environment.begin(write=True, db=self._tables.about) as txn:
            if (found := txn.get(b"format", FORMAT)) != FORMAT:
                written = found.decode("ascii", "replace")[:20]
                raise StoreUnavailableError(
                    f"{self._directory}: was written in format {written}, and this version reads {FORMAT.decode()}; "
                    "update KeyBlock, or give another directory"
                )
            txn.put(b"format", FORMAT, overwrite=False)  # no write where it is there: a full disk can be started from

    def _check_sizes(self, items: Sequence[Item]) -> None:
        for item in items:
            if len(item.content) > self.largest:
                raise StoreFullError(
                    f"a document takes {len(item.content)} bytes; a store of {self._capacity} bytes keeps none over {self.largest}"
                )

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
def claimed(directory: Path) -> Iterator[None]:
    """Claim a directory for this process, until the block or the process ends.

    Raises StoreUnavailableError if another process has it.
    """
    with _clear_errors(directory):
        directory.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(directory / "keyblock.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StoreUnavailableError(
                f"{directory}: another process uses this store; give each replica a directory of its own, or all of them one Redis"
            ) from None
        yield
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
