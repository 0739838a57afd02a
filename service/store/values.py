"""Turns documents into stored values and back: seals them on the way in; opens, checks and counts them on the way out.

A seal makes sure that a user of the same Redis without the key cannot forge a value that the service accepts. It is an HMAC-SHA256
over the namespace, the id and the value, so a value cannot pass for another document's either. It does not cover the value's age:
a user with write access can restore an earlier value of the same document, or delete it.
"""

import hashlib
import hmac
import logging
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from keyblock.prepared import PreparedDocument
from service.store.base import AWAY, Away, Item
from service.store.codec import DamagedError, StoredDocument, decode, decoded_bytes, fingerprint_of
from service.telemetry.metrics import Metrics

SEAL_BYTES = 32


log = logging.getLogger(__name__)
Check = Callable[[PreparedDocument], object]
"""Raises ValueError for a document that cannot be used."""


class Seal:
    """Seals and opens values.

    Args:
        key: shared by the replicas, too long to guess; empty: values are not sealed.
    """

    def __init__(self, key: str = "") -> None:
        self._key = key.encode()

    @property
    def extra_bytes(self) -> int:
        """Bytes that the seal adds to a value."""
        return SEAL_BYTES if self._key else 0

    def sealed(self, namespace: str, identity: str, content: bytes) -> bytes:
        """The value, followed by its seal."""
        return content + self._seal(namespace, identity, content) if self._key else content

    def opened(self, namespace: str, identity: str, content: bytes) -> bytes:
        """The value without its seal. Raises DamagedError if the seal does not fit the key, namespace, id and value."""
        if not self._key:
            return content
        value, seal = content[:-SEAL_BYTES], content[-SEAL_BYTES:]
        if not hmac.compare_digest(seal, self._seal(namespace, identity, value)):
            raise DamagedError("a stored document was not sealed with this service's KEYBLOCK_STORE_KEY")
        return value

    def _seal(self, namespace: str, identity: str, content: bytes) -> bytes:
        names = [part.encode("utf-8", "surrogatepass") for part in (namespace, identity)]
        made = hmac.new(self._key, digestmod=hashlib.sha256)
        for name in names:
            made.update(len(name).to_bytes(4, "little") + name)
        made.update(content)
        return made.digest()


class Found(NamedTuple):
    """A document of the store.

    Attributes:
        text: if it is needed, or another pipeline has prepared the document; otherwise None.
        stale: whether another pipeline has prepared the document.
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
        """Bytes of memory that a document takes when decoded; 0 for a missing one."""
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
        """The documents, with their texts if needed; None for a missing one, and for a value that KeyBlock did not store."""
        pairs = zip(ids, contents, strict=True)
        opened = partial(self._opened, namespace, fingerprint=fingerprint, texts=texts, check=check)
        found = [opened(identity, content) for identity, content in pairs]
        outcomes = Counter(_outcome(one, content) for one, content in zip(found, contents, strict=True) if one is not AWAY)
        for outcome, number in outcomes.items():
            self._metrics.add("store_lookups", number, outcome=outcome)
        return found

    def _opened(
        self, namespace: str, identity: str, content: bytes | Away | None, *, fingerprint: bytes, texts: bool, check: Check
    ) -> Found | Away | None:
        if content is AWAY:
            return AWAY
        if content is None:
            return None
        try:
            stored = decode(self._seal.opened(namespace, identity, content))
            if stored.id != identity:
                raise DamagedError("a stored document lies under the id of another")
            stale = stored.fingerprint != fingerprint
            if not stale:
                _check(stored.prepared, check)
            return Found(stored, stored.text if texts or stale else None, stale)
        except DamagedError as error:
            log.error("%s; it is treated as if it were not there (namespace %s)", error, namespace)
            return None


def _outcome(found: Found | Away | None, content: bytes | Away | None) -> str:
    """The outcome of a lookup, for the metrics."""
    if isinstance(found, Found):
        return "stale" if found.stale else "hit"
    return "miss" if content is None else "damaged"


def _check(prepared: PreparedDocument, check: Check) -> None:
    try:
        check(prepared)
    except ValueError as error:
        raise DamagedError(f"a stored document {error}") from None
