"""Stored values as documents: sealed on the way in; opened, checked and counted on the way out."""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from keyblock.prepared import PreparedDocument
from service.store.base import AWAY, Away, Item
from service.store.codec import DamagedError, StoredDocument, decode, decoded_bytes, fingerprint_of
from service.store.seal import Seal
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
Check = Callable[[PreparedDocument], object]
"""Raises ValueError for a document that cannot be used."""


class Found(NamedTuple):
    """A document of the store.

    Attributes:
        text: where it is needed, or was prepared by another pipeline.
        stale: whether it was.
    """

    stored: StoredDocument
    text: str | None
    stale: bool


class Values:
    """Reads and seals the values of a store.

    Args:
        seal: of the values.
        metrics: counts lookups.
    """

    def __init__(self, seal: Seal, metrics: Metrics) -> None:
        self._seal = seal
        self._metrics = metrics

    @property
    def extra_bytes(self) -> int:
        """Bytes that the seal adds to a value."""
        return self._seal.extra_bytes

    def sealed(self, namespace: str, item: Item) -> Item:
        """The item with its value sealed."""
        return item._replace(content=self._seal.sealed(namespace, item.id, item.content))

    def decoded_bytes(self, content: bytes | Away | None, fingerprint: bytes, *, texts: bool) -> int:
        """Bytes of memory that a document will take when it is decoded; 0 for one that is not there."""
        if not isinstance(content, bytes):
            return 0
        value = memoryview(content)[: len(content) - self._seal.extra_bytes]
        return decoded_bytes(value, text=texts or fingerprint_of(content) != fingerprint)

    def decoded(
        self,
        namespace: str,
        ids: Sequence[str],
        contents: Sequence[bytes | Away | None],
        fingerprint: bytes,
        *,
        texts: bool,
        check: Check,
    ) -> list[Found | Away | None]:
        """Documents with the texts that are needed; None for one that is not there, and for a value that KeyBlock did not store."""
        pairs = zip(ids, contents, strict=True)
        opened = partial(self._opened, namespace, fingerprint=fingerprint, texts=texts, check=check)
        return [opened(identity, content) for identity, content in pairs]

    def _opened(
        self, namespace: str, identity: str, content: bytes | Away | None, *, fingerprint: bytes, texts: bool, check: Check
    ) -> Found | Away | None:
        if content is AWAY:
            return AWAY
        if content is None:
            self._metrics.add("store_lookups", outcome="miss")
            return None
        found = None
        try:
            stored = decode(self._seal.opened(namespace, identity, content))
            if stored.id != identity:
                raise DamagedError("a stored document lies under the id of another")
            stale = stored.fingerprint != fingerprint
            if not stale:
                _check(stored.prepared, check)
            found = Found(stored, stored.text if texts or stale else None, stale)
        except DamagedError as error:
            log.error("%s; it is treated as if it were not there (namespace %s)", error, namespace)
        outcome = "damaged" if found is None else "stale" if found.stale else "hit"
        self._metrics.add("store_lookups", outcome=outcome)
        return found


def _check(prepared: PreparedDocument, check: Check) -> None:
    try:
        check(prepared)
    except ValueError as error:
        raise DamagedError(f"a stored document {error}") from None
