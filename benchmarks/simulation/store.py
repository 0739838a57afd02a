"""A simulated store of documents. It goes away as a whole or in part, is slow or full, or does not acknowledge a write."""

import zlib
from collections.abc import Callable, Sequence
from typing import Any

from benchmarks.simulation.machine import SimulatedMachine
from service.store.base import AWAY, Away, DocumentStore, Item, Renewal, Size, StoreFullError, StoreUnavailableError
from service.store.codec import decode

USUAL_SECONDS = 1e-4
PARTLY = 1 / 3  # severity if only a part of the store goes away; the rest answers, as a cluster does
Key = tuple[str, str]


def may_be_lost(identity: str) -> bool:
    """Whether a document is in the part of the store that can go away alone."""
    return zlib.crc32(identity.encode()) % 3 == 0


class SimulatedStore(DocumentStore):
    """A store, as one process of the service after the other opens it.

    Args:
        machine: provides the clock.

    Attributes:
        fault: returns the current severity of a fault, from 0 (none) to 1.
        wrong: wrong requests, as messages.
    """

    kind, largest = "simulated", 1 << 30

    def __init__(self, machine: SimulatedMachine) -> None:
        self.fault: Callable[[str], float] = lambda _: 0.0
        self.wrong: list[str] = []
        self._machine = machine
        self._kept: dict[Key, Item] = {}

    def number(self, key: Key) -> int:
        """The number of the document stored now; 0 for none."""
        content = self._get(key)
        return 0 if content is None else _number(content)

    def sizes(self, namespace: str, ids: Sequence[str]) -> list[int | Away]:
        """See DocumentStore."""
        return [one if one is AWAY else len(one or b"") for one in self.get_many(namespace, ids)]

    def get_many(self, namespace: str, ids: Sequence[str]) -> list[bytes | Away | None]:
        """See DocumentStore."""
        self._answer()
        return [AWAY if self._lost(identity) else self._get((namespace, identity)) for identity in ids]

    def put_many(self, namespace: str, items: Sequence[Item]) -> None:
        """See DocumentStore."""
        self._answer(*(item.id for item in items), changes=True)
        self._kept |= {(namespace, item.id): item for item in items}
        self._acknowledge()

    def renew_many(self, namespace: str, renewals: Sequence[Renewal]) -> None:
        """See DocumentStore."""
        self._answer(*(item.id for _, item in renewals), changes=True)
        for head, item in renewals:
            key = namespace, item.id
            before = self._get(key)
            if before is not None and before.startswith(head):
                if _number(item.content) != _number(before):
                    self.wrong.append(f"{key}: document {_number(before)} is renewed with {_number(item.content)}")
                self._kept[key] = Item(item.id, item.content, self._kept[key].expires)
        self._acknowledge()

    def delete(self, namespace: str, identity: str) -> bool:
        """See DocumentStore."""
        self._answer(identity, changes=True)
        was_there = self._get((namespace, identity)) is not None
        self._kept.pop((namespace, identity), None)
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

    def _get(self, key: Key) -> bytes | None:
        item = self._kept.get(key)
        if item is not None and 0 < item.expires <= self._machine.wall() * 1000:
            del self._kept[key]
            return None
        return None if item is None else item.content

    def _lost(self, identity: str) -> bool:
        """Whether a document is in a part that is down."""
        return 0 < self.fault("store away") < PARTLY and may_be_lost(identity)

    def _answer(self, *changed: str, changes: bool = False) -> None:
        self._machine.spend(max(USUAL_SECONDS, 3 * self.fault("store slow")))
        if self.fault("store away") >= PARTLY or any(map(self._lost, changed)):
            raise StoreUnavailableError("away")
        if self.fault("store full") and changes:
            raise StoreFullError("full")

    def _acknowledge(self) -> None:
        if self.fault("store mute"):
            raise StoreUnavailableError("no answer")


def _number(content: bytes) -> int:
    return int(decode(content).prepared.token_ids[0])
