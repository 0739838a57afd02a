"""What a store of documents can do, whatever keeps them: it maps ids to bytes and knows nothing of what these say."""

from collections.abc import Sequence
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol

HEAD = 33  # bytes at the start of what is stored that tell one writing of it from every other


class StoreError(Exception):
    """What a store cannot do; one clear line."""


class StoreFullError(StoreError):
    """There is no room for what was to be stored; nothing of it is."""


class StoreUnavailableError(StoreError):
    """The store does not answer, or cannot be read or written."""


class Away(Enum):
    """In the place of a document that may be there: the part of the store that has it does not answer, while others may."""

    AWAY = "away"


AWAY: Final = Away.AWAY


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
        evicted: documents removed to make room, by this process or by the servers that keep them.
        away: parts of the store that do not answer; what they hold is not counted.
    """

    documents: int
    bytes: int
    evicted: int
    away: int = 0


class DocumentStore(Protocol):
    """Keeps items by namespace and id. Safe to use from several threads; every method may raise StoreUnavailableError.

    A store of several servers says AWAY of the documents on those that do not answer, and gives the others.

    Attributes:
        kind: a word for /info.
        largest: bytes that one content may have.
    """

    kind: str
    largest: int

    def sizes(self, namespace: str, ids: Sequence[str]) -> Sequence[int | Away]:
        """Bytes of each content, in the order asked for; 0 for what is not there."""

    def get_many(self, namespace: str, ids: Sequence[str]) -> Sequence[bytes | Away | None]:
        """The contents, in the order asked for; None for what is not there, or has expired."""

    def put_many(self, namespace: str, items: Sequence[Item]) -> None:
        """Store all of them. What it returns from is acknowledged: it is not lost by a kill.

        Raises StoreFullError. Where it raises none is stored; on several servers some may be, and none is acknowledged.
        """

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
