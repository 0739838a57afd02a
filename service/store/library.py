"""The store as the rest of the service sees it: stored documents in and out, in threads of its own, errors as answers.

A store that hangs holds up nobody who sends texts, since reading has threads of its own; writing has one, as LMDB has one writer.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

from service.call import Documents
from service.errors import RequestError
from service.store.base import DocumentStore, Item, Renewal, Size, StoreError, StoreFullError, StoreUnavailableError
from service.store.codec import DamagedError, StoredDocument, decode, encode
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
READERS = 4
AT_ONCE = 32  # documents that are looked up in one step
AWAY_SECONDS = 2  # after which to ask again for what an unavailable store has
MOST_RENEWALS = 16  # steps of rewriting that may wait; what is left out is rewritten when it is next used
OFF = "documents by id are off: start the service with KEYBLOCK_STORE=DIRECTORY, or with redis://HOST:PORT for several replicas"

T = TypeVar("T")


class Found(NamedTuple):
    """A document of the store.

    Attributes:
        text: where it is needed, or was prepared by another pipeline.
        stale: whether it was.
    """

    stored: StoredDocument
    text: str | None
    stale: bool


class Library:
    """Stored documents by id.

    Args:
        store: keeps them; closed by `close`.
        fingerprint: see below.
        ttl_seconds: until a document expires that does not say when; 0 for never.
        metrics: counts lookups and errors.

    Attributes:
        fingerprint: of the preparation that is kept, 16 bytes: the default model's. Another model's is made anew from the text.
        preparing: one request's documents are prepared for the store at a time, so that reranking goes on beside.
    """

    def __init__(self, store: DocumentStore, fingerprint: bytes, ttl_seconds: int, metrics: Metrics) -> None:
        self.fingerprint = fingerprint
        self.preparing = asyncio.Lock()
        self._store = store
        self._ttl_seconds = ttl_seconds
        self._metrics = metrics
        self._readers = ThreadPoolExecutor(READERS, "store-read")
        self._writer = ThreadPoolExecutor(1, "store-write")
        self._renewing: set[Future[None]] = set()

    @property
    def largest(self) -> int:
        """Bytes that one document may take."""
        return self._store.largest

    def expiry(self, seconds: float | None) -> int:
        """When a document expires that is stored now for so many seconds, as an item says it."""
        seconds = self._ttl_seconds if seconds is None else seconds
        return int((time.time() + seconds) * 1000) if seconds else 0

    async def look_up(self, documents: Documents, fingerprint: bytes, *, texts: bool, until: float | None) -> None:
        """Enter what the store has of the documents that were sent as an id alone, as far as there is time.

        Args:
            documents: their `by_id` is filled.
            fingerprint: of the preparation that is wanted.
            texts: whether texts and titles are wanted too.
            until: when time is up, as `time.perf_counter` counts.

        Raises RequestError 503 when the store does not answer.
        """
        by_id = documents.by_id
        numbers = list(by_id.ids)
        with suppress(TimeoutError):
            async with asyncio.timeout(None if until is None else until - time.perf_counter()):
                for start in range(0, len(numbers), AT_ONCE):
                    part = numbers[start : start + AT_ONCE]
                    ids = [by_id.ids[number] for number in part]
                    read = partial(self._read, by_id.namespace, ids, fingerprint, texts=texts)
                    found = await self._in(self._readers, read)
                    for number, one in zip(part, found, strict=True):
                        _enter(documents, number, one)

    async def find(self, namespace: str, identity: str) -> StoredDocument | None:
        """The document; None for an unknown id. Raises RequestError 503."""
        (found,) = await self._in(self._readers, lambda: self._read(namespace, [identity], self.fingerprint, texts=False))
        return None if found is None else found.stored

    async def put(self, namespace: str, items: Sequence[Item]) -> None:
        """Store them all, or none. Raises RequestError 507 or 503."""
        await self._in(self._writer, lambda: self._store.put_many(namespace, items))
        self._metrics.add("stored", len(items))

    async def delete(self, namespace: str, identity: str) -> bool:
        """Forget a document; whether it was there. Raises RequestError 507 (a full disk) or 503."""
        return await self._in(self._writer, lambda: self._store.delete(namespace, identity))

    def renew(self, documents: Documents, fingerprint: bytes) -> None:
        """Write back what was prepared again, in the background; none of it matters to the request.

        Only of the preparation that is kept: two models that prepare differently would rewrite it in turns.
        """
        if fingerprint != self.fingerprint:
            return
        by_id = documents.by_id
        renewed = [(by_id.stale[number], prepared) for number, prepared in list(by_id.renewed.items())]
        if not renewed or len(self._renewing) >= MOST_RENEWALS:
            return
        new = [(old.head, replace(old, prepared=prepared, fingerprint=fingerprint)) for old, prepared in renewed]
        work = self._writer.submit(self._renew, by_id.namespace, new)
        self._renewing.add(work)
        work.add_done_callback(self._renewing.discard)

    async def size(self) -> Size:
        """How much there is. Raises RequestError 503."""
        return await self._in(self._readers, self._store.size)

    async def about(self) -> dict[str, Any]:
        """What keeps the documents, for /info; without what an unavailable store does not tell."""
        settings = {"ttl_seconds": self._ttl_seconds or None, "fingerprint": self.fingerprint.hex()}
        try:
            told = await self._in(self._readers, self._store.about)
            size = await self.size()
        except RequestError:
            return {"kind": self._store.kind, "available": False, **settings}
        return {**told, "available": True, "documents": size.documents, "bytes": size.bytes, **settings}

    async def measure(self) -> None:
        """Set the gauges."""
        try:
            size = await self.size()
        except RequestError:
            self._metrics.set("store_up", 0)
            return
        self._metrics.set("store_up", 1)
        for name, value in zip(("store_documents", "store_bytes", "store_evicted"), size, strict=True):
            self._metrics.set(name, value)

    def close(self) -> None:
        """Finish what is being written and give the store back."""
        self._readers.shutdown(wait=True, cancel_futures=True)
        self._writer.shutdown(wait=True)
        self._store.close()

    async def _in(self, pool: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        """Work in a thread, errors of the store as answers to the client."""
        with self._answered():
            return await asyncio.get_running_loop().run_in_executor(pool, work)

    @contextmanager
    def _answered(self) -> Iterator[None]:
        try:
            yield
        except StoreFullError as error:
            self._metrics.add("store_errors", why="full")
            raise RequestError(507, str(error)) from None
        except StoreUnavailableError as error:
            self._metrics.add("store_errors", why="unavailable")
            log.warning("%s", error)
            raise RequestError(503, "the store of documents does not answer: try again", retry_after=AWAY_SECONDS) from None

    def _read(self, namespace: str, ids: Sequence[str], fingerprint: bytes, *, texts: bool) -> list[Found | None]:
        return [self._decoded(content, fingerprint, texts=texts) for content in self._store.get_many(namespace, ids)]

    def _decoded(self, content: bytes | None, fingerprint: bytes, *, texts: bool) -> Found | None:
        outcome = "miss"
        found = None
        if content is not None:
            try:
                stored = decode(content)
            except DamagedError as error:
                outcome = "damaged"
                log.error("%s", error)
            else:
                stale = stored.fingerprint != fingerprint
                outcome = "stale" if stale else "hit"
                found = Found(stored, stored.text if texts or stale else None, stale)
        self._metrics.add("store_lookups", outcome=outcome)
        return found

    def _renew(self, namespace: str, new: Sequence[tuple[bytes, StoredDocument]]) -> None:
        try:
            self._store.renew_many(
                namespace, [Renewal(head, Item(document.id, encode(document), document.expires)) for head, document in new]
            )
        except StoreError as error:
            self._metrics.add("store_errors", why="full" if isinstance(error, StoreFullError) else "unavailable")
            log.warning("documents that were prepared again are not written back: %s", error)


def _enter(documents: Documents, number: int, found: Found | None) -> None:
    by_id = documents.by_id
    if found is None:
        by_id.unknown.add(number)
        by_id.chars[number] = 0
        return
    by_id.known.add(number)
    if found.text is not None:
        documents.texts[number], documents.titles[number] = found.text, found.stored.title
    if found.stale:
        by_id.stale[number] = found.stored
    else:
        by_id.found[number] = found.stored.prepared
    by_id.chars[number] = int(found.stored.prepared.ends.max(initial=0))
