"""A simulated store of documents. It goes away as a whole or in part, is slow or full, or does not acknowledge a write."""

import zlib
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.simulation.machine import SimulatedMachine
from service.store.base import AWAY, Away, DocumentStore, Item, Renewal, Size, StoreFullError, StoreUnavailableError
from service.store.codec import decode

USUAL_SECONDS = 1e-4
PARTLY = 1 / 3  # severity if only a part of the store goes away
Key = tuple[str, str]


class Shelf:
    """The stored documents of any store, and the failures of its requests.

    Attributes:
        fault: returns the current severity of a fault, from 0 (none) to 1.
        wrong: wrong requests, as messages.
    """

    def __init__(self, machine: SimulatedMachine) -> None:
        self.fault: Callable[[str], float] = lambda _: 0.0
        self.wrong: list[str] = []
        self.machine = machine
        self._kept: dict[Key, Item] = {}

    @property
    def away(self) -> bool:
        """Whether the store is down."""
        return self.fault("store away") >= PARTLY

    @property
    def partly(self) -> bool:
        """Whether a third of the store is down. Only SimulatedStore then answers for the rest, as a cluster does."""
        return 0 < self.fault("store away") < PARTLY

    @property
    def mute(self) -> bool:
        """Whether the store carries out commands without acknowledging them."""
        return self.fault("store mute") > 0

    @property
    def full(self) -> bool:
        """Whether the store is full."""
        return self.fault("store full") > 0

    @property
    def cut(self) -> bool:
        """Whether a server's answers break off."""
        return self.fault("store cut") > 0

    @property
    def seconds(self) -> float:
        """Seconds until the store answers or fails."""
        return max(USUAL_SECONDS, 3 * self.fault("store slow"))

    def lost(self, identity: str) -> bool:
        """Whether a document is in the part that is down."""
        return self.partly and may_be_lost(identity)

    def number(self, key: Key) -> int:
        """The number of the document stored now; 0 for none."""
        content = self.get(key)
        return 0 if content is None else _number(content)

    def get(self, key: Key) -> bytes | None:
        """The stored content, or None."""
        item = self._kept.get(key)
        if item is not None and 0 < item.expires <= self.machine.wall() * 1000:
            del self._kept[key]
            return None
        return None if item is None else item.content

    def put(self, key: Key, content: bytes, expires: int) -> None:
        """Store a document."""
        self._kept[key] = Item(key[1], content, expires)

    def renew(self, key: Key, head: bytes, content: bytes) -> None:
        """Replace a content with this beginning by the same document, prepared anew. Its expiry stays."""
        before = self.get(key)
        if before is not None and before.startswith(head):
            if _number(content) != _number(before):
                self.wrong.append(f"{key}: document {_number(before)} is renewed with {_number(content)}")
            self.put(key, content, self._kept[key].expires)

    def delete(self, key: Key) -> bool:
        """Delete a document; whether it was stored."""
        was_there = self.get(key) is not None
        self._kept.pop(key, None)
        return was_there

    def size(self) -> Size:
        """The size of the store."""
        return Size(len(self._kept), sum(len(item.content) for item in self._kept.values()), 0)


def may_be_lost(identity: str) -> bool:
    """Whether a document is in the part of the store that can go away alone."""
    return zlib.crc32(identity.encode()) % 3 == 0


class SimulatedStore(DocumentStore):
    """A store in the service's process, as LMDB is.

    Args:
        shelf: the stored documents.
    """

    kind, largest = "simulated", 1 << 30

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = shelf

    def sizes(self, namespace: str, ids: Sequence[str]) -> list[int | Away]:
        """See DocumentStore."""
        return [one if one is AWAY else len(one or b"") for one in self.get_many(namespace, ids)]

    def get_many(self, namespace: str, ids: Sequence[str]) -> list[bytes | Away | None]:
        """See DocumentStore."""
        self._answer()
        return [AWAY if self._shelf.lost(identity) else self._shelf.get((namespace, identity)) for identity in ids]

    def put_many(self, namespace: str, items: Sequence[Item]) -> None:
        """See DocumentStore."""
        self._answer(*(item.id for item in items), changes=True)
        for item in items:
            self._shelf.put((namespace, item.id), item.content, item.expires)
        self._acknowledge()

    def renew_many(self, namespace: str, renewals: Sequence[Renewal]) -> None:
        """See DocumentStore."""
        self._answer(*(item.id for _, item in renewals), changes=True)
        for head, item in renewals:
            self._shelf.renew((namespace, item.id), head, item.content)
        self._acknowledge()

    def delete(self, namespace: str, identity: str) -> bool:
        """See DocumentStore."""
        self._answer(identity, changes=True)
        was_there = self._shelf.delete((namespace, identity))
        self._acknowledge()
        return was_there

    def size(self) -> Size:
        """See DocumentStore."""
        self._answer()
        return self._shelf.size()

    def about(self) -> dict[str, Any]:
        """See DocumentStore."""
        return {"kind": self.kind}

    def close(self) -> None:
        """See DocumentStore."""

    def _answer(self, *changed: str, changes: bool = False) -> None:
        self._shelf.machine.spend(self._shelf.seconds)
        if self._shelf.away or any(map(self._shelf.lost, changed)):
            raise StoreUnavailableError("away")
        if self._shelf.full and changes:
            raise StoreFullError("full")

    def _acknowledge(self) -> None:
        if self._shelf.mute:
            raise StoreUnavailableError("no answer")


def _number(content: bytes) -> int:
    return int(decode(content).prepared.token_ids[0])
