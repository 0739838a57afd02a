"""A store of documents that goes away as a whole or in part, is slow, is full, or does not say that it has done what it did."""

import zlib
from collections.abc import Sequence
from typing import Any

from benchmarks.simulation.machine import SimulatedMachine
from service.store.base import AWAY, Away, DocumentStore, Item, Renewal, Size, StoreFullError, StoreUnavailableError
from service.store.codec import decode

USUAL_SECONDS = 1e-4
Key = tuple[str, str]


class SimulatedStore(DocumentStore):
    """Keeps items in memory; all of a change happens as it begins.

    Attributes:
        away: whether it does not answer.
        partly: whether a third of it does not.
        mute: whether it does as told and does not say so.
        full: whether it has no room.
        seconds: that it takes for an answer, or for none.
        wrong: what it saw that nobody should ask of it.
    """

    kind, largest = "simulated", 1 << 30

    def __init__(self, machine: SimulatedMachine) -> None:
        self.away = self.partly = self.mute = self.full = False
        self.seconds = USUAL_SECONDS
        self.wrong: list[str] = []
        self._machine = machine
        self._kept: dict[Key, Item] = {}

    def number(self, key: Key) -> int:
        """The document that is there now; 0 for none."""
        content = self._alive(key)
        return 0 if content is None else _number(content)

    def sizes(self, namespace: str, ids: Sequence[str]) -> list[int | Away]:
        """See DocumentStore."""
        return [one if one is AWAY else len(one or b"") for one in self.get_many(namespace, ids)]

    def get_many(self, namespace: str, ids: Sequence[str]) -> list[bytes | Away | None]:
        """See DocumentStore."""
        self._answer()
        return [AWAY if self._lost(identity) else self._alive((namespace, identity)) for identity in ids]

    def put_many(self, namespace: str, items: Sequence[Item]) -> None:
        """See DocumentStore."""
        self._answer(*(item.id for item in items), changes=True)
        for item in items:
            self._kept[(namespace, item.id)] = item
        self._acknowledge()

    def renew_many(self, namespace: str, renewals: Sequence[Renewal]) -> None:
        """See DocumentStore."""
        self._answer(*(item.id for _, item in renewals), changes=True)
        for head, item in renewals:
            key = namespace, item.id
            if (self._alive(key) or b"").startswith(head):
                self._renew(key, item)
        self._acknowledge()

    def delete(self, namespace: str, identity: str) -> bool:
        """See DocumentStore."""
        self._answer(identity, changes=True)
        key = namespace, identity
        was_there = self._alive(key) is not None
        self._kept.pop(key, None)
        self._acknowledge()
        return was_there

    def size(self) -> Size:
        """See DocumentStore."""
        self._answer()
        return Size(len(self._kept), sum(len(item.content) for item in self._kept.values()), 0)

    def about(self) -> dict[str, Any]:
        """See DocumentStore."""
        return {"kind": self.kind}

    def close(self) -> None:
        """See DocumentStore."""

    def _answer(self, *changed: str, changes: bool = False) -> None:
        self._machine.spend(self.seconds)
        if self.away or any(map(self._lost, changed)):
            raise StoreUnavailableError("away")
        if self.full and changes:
            raise StoreFullError("full")

    def _lost(self, identity: str) -> bool:
        return self.partly and zlib.crc32(identity.encode()) % 3 == 0

    def _acknowledge(self) -> None:
        if self.mute:
            raise StoreUnavailableError("no answer")

    def _alive(self, key: Key) -> bytes | None:
        item = self._kept.get(key)
        if item is not None and 0 < item.expires <= self._machine.wall() * 1000:
            del self._kept[key]
            return None
        return None if item is None else item.content

    def _renew(self, key: Key, item: Item) -> None:
        before, self._kept[key] = self._kept[key], item
        if (_number(item.content), item.expires) != (_number(before.content), before.expires):
            self.wrong.append(f"{key}: document {_number(before.content)} is renewed with {_number(item.content)}")


def _number(content: bytes) -> int:
    return int(decode(content).prepared.token_ids[0])
