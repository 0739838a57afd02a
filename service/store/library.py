"""The store for the rest of the service: reads and writes documents in threads of its own, and turns errors into answers.

Reading has its own threads, so that a store that hangs does not hold up requests with texts. Writing has one, as LMDB has one
writer.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import starmap
from typing import Any, TypeVar

from keyblock.prepared import PreparedDocument
from service.errors import RequestError
from service.pace import slices
from service.store.base import AWAY, Away, DocumentStore, Item, Renewal, Size, StoreError, StoreFullError, StoreUnavailableError
from service.store.codec import (
    Check,
    DamagedError,
    Found,
    Seal,
    StoredDocument,
    decode,
    decoded_bytes,
    encode,
    fingerprint_of,
)
from service.store.understanding import BackgroundReading, Name
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
READERS = 4
BATCH_DOCUMENTS = 64  # that are looked up in one step
BATCH_BYTES = 4 << 20  # of these documents, as they are stored
AWAY_SECONDS = 2  # after which a client may try again when the store does not answer
MOST_RENEWALS = 16  # rewriting steps that may wait; a document that is left out is rewritten at its next use
OFF = "documents by id are off: start the service with KEYBLOCK_STORE=DIRECTORY, or with redis://HOST:PORT for several replicas"
AWAY_PROBLEM = "the store of documents does not answer: try again"

T = TypeVar("T")
Content = bytes | Away | None
"""What the store has of a document."""


class Library:
    """Stored documents by id.

    Args:
        store: keeps the documents; `close` closes it.
        fingerprint: see below.
        ttl_seconds: lifetime of a document that has no expiry of its own; 0 for ever.
        metrics: counts lookups and errors.
        seal: of values; None: they are stored without one.
        busy: whether requests are in flight, to which the background gives way.

    Attributes:
        fingerprint: of the stored preparation, 16 bytes: the default model's. Other models prepare documents again from the text.
        reading: understands the documents in the background.
        preparing: held while documents are prepared for the store: only one request does so at a time, so that reranking goes on.
    """

    def __init__(
        self,
        store: DocumentStore,
        fingerprint: bytes,
        ttl_seconds: int,
        metrics: Metrics,
        seal: Seal | None = None,
        busy: Callable[[], bool] = bool,
    ) -> None:
        self.fingerprint = fingerprint
        self.preparing = asyncio.Lock()
        self._store = store
        self._ttl_seconds = ttl_seconds
        self._metrics = metrics
        self._seal = seal or Seal()
        self._readers = ThreadPoolExecutor(READERS, "store-read")
        self._writer = ThreadPoolExecutor(1, "store-write")
        self._renewing: set[Future[None]] = set()
        self.reading = BackgroundReading(self._find_unread, self._write_read, busy, metrics, lambda: starmap(Name, store.unread()))

    @property
    def largest(self) -> int:
        """Bytes that one document may take."""
        return self._store.largest - self._seal.extra_bytes

    def expiry(self, seconds: float | None) -> int:
        """The expiry of a document that is stored now for `seconds`, in the unit of `Item.expires`."""
        seconds = self._ttl_seconds if seconds is None else seconds
        return int((time.time() + seconds) * 1000) if seconds else 0

    async def look_up(
        self,
        namespace: str,
        ids: Sequence[str],
        fingerprint: bytes,
        *,
        texts: bool,
        check: Check = id,
        until: float | None = None,
        reserve: Callable[[int], object] = int,
    ) -> dict[str, Found | Away | None]:
        """What the store has of distinct ids, as far as there is time; None for an unknown one, AWAY where a part does not answer.

        Args:
            namespace: that the ids are of.
            ids: of the documents.
            fingerprint: of the preparation that is wanted.
            texts: whether texts are wanted too.
            check: of a document that is not stale; one that fails it is not there: a graph would fail with the whole batch.
            until: deadline, in seconds of `time.perf_counter`.
            reserve: called with the bytes that memory is going to hold, before it does; it may raise.

        Raises RequestError 503 when no part of the store answers, and what `reserve` raises.
        """
        found: dict[str, Found | Away | None] = {}
        with suppress(TimeoutError):
            async with asyncio.timeout(None if until is None else until - time.perf_counter()):
                answers = await self._in_thread(self._readers, partial(self._store.sizes, namespace, ids))
                sizes = {identity: size for identity, size in zip(ids, answers, strict=True) if size is not AWAY}
                found |= dict.fromkeys((identity for identity in ids if identity not in sizes), AWAY)
                reached = list(sizes)
                for part in slices(list(sizes.values()), BATCH_DOCUMENTS, BATCH_BYTES):
                    batch = reached[part.start : part.stop]
                    reserve(sum(sizes[identity] for identity in batch))
                    contents = await self._in_thread(self._readers, partial(self._store.get_many, namespace, batch))
                    reserve(sum(self._decoded_bytes(content, fingerprint, texts=texts) for content in contents))
                    read = partial(self._decoded, namespace, batch, contents, fingerprint, texts=texts, check=check)
                    found |= zip(batch, await self._in_thread(self._readers, read), strict=True)
        if (understanding := self.reading.understanding) is not None and fingerprint == self.fingerprint:
            fresh = ((identity, one) for identity, one in found.items() if isinstance(one, Found) and not one.stale)
            self.reading.add(Name(namespace, i) for i, one in fresh if not understanding.has_read(one.stored.prepared))
        if away := sum(one is AWAY for one in found.values()):
            self._metrics.add("store_lookups", away, outcome="away")
            self._metrics.add("store_errors", why="unavailable")
        return found

    async def find(self, namespace: str, identity: str, reserve: Callable[[int], object]) -> Found | None:
        """The document with its text; None for an unknown id. Raises as `look_up` does, and 503 if the id's part is away."""
        found = (await self.look_up(namespace, [identity], self.fingerprint, texts=True, reserve=reserve))[identity]
        if found is AWAY:
            raise RequestError(503, AWAY_PROBLEM, retry_after=AWAY_SECONDS)
        return found

    async def put(self, namespace: str, items: Sequence[Item]) -> None:
        """Store all items, or none. Raises RequestError 507 or 503."""
        unread = self.reading.understanding is not None
        sealed = [self._sealed(namespace, item)._replace(unread=unread) for item in items]
        await self._in_thread(self._writer, lambda: self._store.put_many(namespace, sealed))
        self._metrics.add("stored", len(items))
        self.reading.add(Name(namespace, item.id) for item in items)

    async def delete(self, namespace: str, identity: str) -> bool:
        """Delete a document. Returns whether it was there. Raises RequestError 507 (a full disk) or 503."""
        return await self._in_thread(self._writer, lambda: self._store.delete(namespace, identity))

    def renew(self, namespace: str, renewed: Sequence[tuple[StoredDocument, PreparedDocument]], fingerprint: bytes) -> None:
        """Write documents that were prepared again back, in the background; the request does not wait for it.

        Only preparations of the stored kind are written: otherwise two models that prepare differently would overwrite each other.

        Args:
            namespace: of the documents.
            renewed: documents as they were found, each with its new preparation.
            fingerprint: of the new preparations.
        """
        if fingerprint != self.fingerprint or not renewed or len(self._renewing) >= MOST_RENEWALS:
            return
        new = [(old.head, replace(old, prepared=prepared, fingerprint=fingerprint)) for old, prepared in renewed]
        work = self._writer.submit(self._renew, namespace, new)
        self._renewing.add(work)
        work.add_done_callback(self._renewing.discard)

    async def size(self) -> Size:
        """The size of the store. Raises RequestError 503."""
        return await self._in_thread(self._readers, self._store.size)

    async def about(self) -> dict[str, Any]:
        """The store and its settings, for /info; fewer of them if the store is unavailable."""
        settings = {"ttl_seconds": self._ttl_seconds or None, "fingerprint": self.fingerprint.hex()}
        try:
            store = await self._in_thread(self._readers, self._store.about)
            size = await self.size()
        except RequestError:
            return {"kind": self._store.kind, "available": False, **settings}
        unread = {} if self.reading.understanding is None else {"unread": self.reading.waiting}
        return {**store, "available": True, "documents": size.documents, "bytes": size.bytes, **settings, **unread}

    async def measure(self) -> None:
        """Set the gauges of the store."""
        try:
            size = await self.size()
        except RequestError:
            self._metrics.set("store_up", 0)
            return
        self._metrics.set("store_up", 1)
        self._metrics.set("store_unread", self.reading.waiting)
        for name, value in zip(("store_documents", "store_bytes", "store_evicted", "store_away"), size, strict=True):
            self._metrics.set(name, value)

    def close(self) -> None:
        """Finish the writes in hand, and close the store."""
        self.reading.close()
        self._readers.shutdown(wait=True, cancel_futures=True)
        self._writer.shutdown(wait=True)
        self._store.close()

    def _find_unread(self, name: Name) -> StoredDocument | None:
        """See BackgroundReading."""
        (content,) = self._store.get_many(name.namespace, [name.id])
        found = self._opened(name.namespace, name.id, content, self.fingerprint, texts=False, check=id)
        return found.stored if isinstance(found, Found) and not found.stale else None

    def _write_read(self, name: Name, old: StoredDocument, new: StoredDocument) -> None:
        """See BackgroundReading."""
        self._writer.submit(self._write_back, name.namespace, [(old.head, new)]).result()

    async def _in_thread(self, pool: Executor, work: Callable[[], T]) -> T:
        """Run the work in a thread, and turn errors of the store into answers to the client."""
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, work)
        except StoreFullError as error:
            self._metrics.add("store_errors", why="full")
            raise RequestError(507, str(error)) from None
        except StoreUnavailableError as error:
            self._metrics.add("store_errors", why="unavailable")
            log.warning("%s", error)
            raise RequestError(503, AWAY_PROBLEM, retry_after=AWAY_SECONDS) from None

    def _sealed(self, namespace: str, item: Item) -> Item:
        return item._replace(content=self._seal.sealed(namespace, item.id, item.content))

    def _decoded_bytes(self, content: Content, fingerprint: bytes, *, texts: bool) -> int:
        """Bytes of memory that a document takes when decoded; 0 for a missing one."""
        if not isinstance(content, bytes):
            return 0
        value = memoryview(content)[: len(content) - self._seal.extra_bytes]
        return decoded_bytes(value, text=texts or fingerprint_of(content) != fingerprint)

    def _decoded(
        self, namespace: str, ids: Sequence[str], contents: Sequence[Content], fingerprint: bytes, *, texts: bool, check: Check
    ) -> list[Found | Away | None]:
        """The documents, with their texts if needed; None for a missing one, and for a value that KeyBlock did not store."""
        pairs = list(zip(ids, contents, strict=True))
        found = [self._opened(namespace, *pair, fingerprint, texts=texts, check=check) for pair in pairs]
        outcomes = Counter(_outcome(one, content) for one, content in zip(found, contents, strict=True) if one is not AWAY)
        for outcome, number in outcomes.items():
            self._metrics.add("store_lookups", number, outcome=outcome)
        return found

    def _opened(
        self, namespace: str, identity: str, content: Content, fingerprint: bytes, *, texts: bool, check: Check
    ) -> Found | Away | None:
        """See `_decoded`; a lookup that is not counted."""
        if not isinstance(content, bytes):
            return content
        try:
            stored = decode(self._seal.opened(namespace, identity, content))
            if stored.id != identity:
                raise DamagedError("a stored document lies under the id of another")
            if not (stale := stored.fingerprint != fingerprint):
                check(stored.prepared)
            return Found(stored, stored.text if texts or stale else None, stale)
        except (DamagedError, ValueError) as error:
            problem = error if isinstance(error, DamagedError) else f"a stored document {error}"
            log.error("%s; it is treated as if it were not there (namespace %s)", problem, namespace)
            return None

    def _write_back(self, namespace: str, new: Sequence[tuple[bytes, StoredDocument]]) -> None:
        """Replace the documents that still have these heads. Raises StoreError."""
        items = [(head, Item(document.id, encode(document), document.expires)) for head, document in new]
        self._store.renew_many(namespace, [Renewal(head, self._sealed(namespace, item)) for head, item in items])

    def _renew(self, namespace: str, new: Sequence[tuple[bytes, StoredDocument]]) -> None:
        try:
            self._write_back(namespace, new)
            self.reading.add(Name(namespace, document.id) for _, document in new)
        except StoreError as error:
            self._metrics.add("store_errors", why="full" if isinstance(error, StoreFullError) else "unavailable")
            log.warning("documents that were prepared again are not written back: %s", error)


def _outcome(found: Found | Away | None, content: Content) -> str:
    """The outcome of a lookup, for the metrics."""
    if isinstance(found, Found):
        return "stale" if found.stale else "hit"
    return "miss" if content is None else "damaged"
