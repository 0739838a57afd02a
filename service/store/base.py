"""The interface of a store of documents, whatever keeps them: it maps ids to bytes and does not read these."""

from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

HEAD = 33  # bytes at the start of a content; they differ for each write of a document


class StoreError(Exception):
    """A store cannot do what it should; the message is one clear line."""


class StoreFullError(StoreError):
    """There is no room for the new documents; none of them is stored."""


class StoreUnavailableError(StoreError):
    """The store does not answer, or cannot be read or written."""


class Away(Enum):
    """Stands for a document that may exist: the part of the store that has it does not answer, while other parts may."""

    AWAY = "away"


AWAY: Final = Away.AWAY


class Item(NamedTuple):
    """The value that is stored under an id.

    Attributes:
        id: any text.
        content: at least HEAD bytes.
        expires: milliseconds since 1970, after which it is gone; 0 for never.
        unread: whether it is noted for `DocumentStore.unread`.
    """

    id: str
    content: bytes
    expires: int = 0
    unread: bool = False


class Renewal(NamedTuple):
    """An item that replaces an older one, if the stored content still starts with `head`."""

    head: bytes
    item: Item


class Size(NamedTuple):
    """The size of a store.

    Attributes:
        documents: their number, including expired ones that are not removed yet.
        bytes: that the documents take.
        evicted: documents removed to make room, by this process or by the servers that keep them.
        away: parts of the store that do not answer; their documents are not counted.
    """

    documents: int
    bytes: int
    evicted: int
    away: int = 0


class DocumentStore(Protocol):
    """Keeps items by namespace and id. Safe to use from several threads; every method may raise StoreUnavailableError.

    A store of several servers gives AWAY for documents on servers that do not answer, and gives the others.

    Attributes:
        kind: a word for /info.
        largest: bytes that one content may have.
    """

    kind: str
    largest: int

    def sizes(self, namespace: str, ids: Sequence[str]) -> Sequence[int | Away]:
        """Bytes of each content, in the order of `ids`; 0 for a missing one."""

    def get_many(self, namespace: str, ids: Sequence[str]) -> Sequence[bytes | Away | None]:
        """The contents, in the order of `ids`; None for one that is missing or expired."""

    def put_many(self, namespace: str, items: Sequence[Item]) -> None:
        """Store all items. When it returns they are acknowledged: a kill does not lose them.

        Raises StoreFullError. If it raises, no item is stored; on several servers some may be, but none is acknowledged.
        """

    def renew_many(self, namespace: str, renewals: Sequence[Renewal]) -> None:
        """Replace the items that were not written or deleted meanwhile. Raises StoreFullError."""

    def unread(self) -> Iterable[tuple[str, str]]:
        """Namespace and id of the items that were stored as unread and not replaced since; none if the store keeps no notes."""
        return ()

    def delete(self, namespace: str, identity: str) -> bool:
        """Delete a document. Returns whether it was there."""

    def size(self) -> Size:
        """The size of the store."""

    def about(self) -> dict[str, Any]:
        """The kind and the settings, for /info."""

    def close(self) -> None:
        """Release all resources."""
