"""What a store of documents can do, whatever keeps them: it maps ids to bytes and knows nothing of what these say."""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

HEAD = 33  # bytes at the start of what is stored that tell one writing of it from every other


class StoreError(Exception):
    """What a store cannot do; one clear line."""


class StoreFullError(StoreError):
    """There is no room for what was to be stored; nothing of it is."""


class StoreUnavailableError(StoreError):
    """The store does not answer, or cannot be read or written."""


class Item(NamedTuple):
    """What is kept under an id.

    Attributes:
        id: any text.
        content: at least HEAD bytes.
        expires: milliseconds since 1970 from when on it is gone; 0 for never.
    """

    id: str
    content: bytes
    expires: int = 0


class Renewal(NamedTuple):
    """An item that is to take the place of an older one: of the one whose content starts with `head`, and of no other."""

    head: bytes
    item: Item


class Size(NamedTuple):
    """What a store holds.

    Attributes:
        documents: how many, expired ones that are not cleared away yet among them.
        bytes: that they take.
        evicted: documents removed to make room, by this process or by the server that keeps them.
    """

    documents: int
    bytes: int
    evicted: int


class DocumentStore(Protocol):
    """Keeps items by namespace and id. Safe to use from several threads; every method may raise StoreUnavailableError.

    Attributes:
        kind: a word for /info.
        largest: bytes that one content may have.
    """

    kind: str
    largest: int

    def sizes(self, namespace: str, ids: Sequence[str]) -> list[int]:
        """Bytes of each content, in the order asked for; 0 for what is not there."""

    def get_many(self, namespace: str, ids: Sequence[str]) -> list[bytes | None]:
        """The contents, in the order asked for; None for what is not there, or has expired."""

    def put_many(self, namespace: str, items: Sequence[Item]) -> None:
        """Store all of them, or none. Raises StoreFullError. What it returns from is acknowledged: it is not lost by a kill."""

    def renew_many(self, namespace: str, renewals: Sequence[Renewal]) -> None:
        """Replace those that nobody has written or deleted meanwhile. Raises StoreFullError."""

    def delete(self, namespace: str, identity: str) -> bool:
        """Forget it; whether it was there."""

    def size(self) -> Size:
        """How much it holds."""

    def about(self) -> dict[str, Any]:
        """Its kind and its settings, for /info."""

    def close(self) -> None:
        """Give everything back."""
