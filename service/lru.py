"""A cache of values by keys of bytes, limited by their cost: the least recently used values are dropped first."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from typing import Generic, TypeVar

from keyblock.prepared import PreparedDocument

LARGEST_SHARE = 8  # a value that costs more than an eighth of the capacity would push out too many others
DOCUMENT_ENTRY_BYTES = 1400  # of an entry without its arrays' data: seven array headers, the key, the table
V = TypeVar("V")


class Lru(Generic[V]):
    """A cache that drops the least recently used values. Safe to use from several threads.

    Args:
        capacity: bytes; 0 keeps nothing.
        cost: gives the bytes of a value with its key and its place.

    Attributes:
        nbytes: cost of all values.
    """

    def __init__(self, capacity: int, cost: Callable[[V], int]) -> None:
        self.capacity = capacity
        self.nbytes = 0
        self._cost = cost
        self._values: OrderedDict[bytes, V] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: bytes) -> V | None:
        """The value, which counts as used, or None."""
        return self.get_all([key])[0]

    def get_all(self, keys: Iterable[bytes]) -> list[V | None]:
        """The values of several keys, in their order; see `get`."""
        with self._lock:
            return [self._used(key) for key in keys]

    def put(self, key: bytes, value: V) -> None:
        """Store the value, unless it is too large, and drop others to make room."""
        self.put_all({key: value})

    def put_all(self, values: Mapping[bytes, V]) -> None:
        """Store several values, in their order; see `put`."""
        costs = {key: self._cost(value) for key, value in values.items()}
        with self._lock:
            for key, cost in costs.items():
                if cost * LARGEST_SHARE <= self.capacity:
                    self._keep(key, values[key], cost)

    def clear(self) -> None:
        """Drop all values."""
        with self._lock:
            dropped, self._values, self.nbytes = self._values, OrderedDict(), 0
        del dropped  # freeing them takes time, so it is done outside the lock

    def _used(self, key: bytes) -> V | None:
        value = self._values.get(key)
        if value is not None:
            self._values.move_to_end(key)
        return value

    def _keep(self, key: bytes, value: V, cost: int) -> None:
        replaced = self._values.pop(key, None)
        self.nbytes += cost - (self._cost(replaced) if replaced is not None else 0)
        self._values[key] = value
        while self.nbytes > self.capacity:
            _, dropped = self._values.popitem(last=False)
            self.nbytes -= self._cost(dropped)


class DocumentCache(Lru[PreparedDocument]):
    """One cache for all models. Models share an entry only if they prepare alike. Safe to use from several threads.

    Args:
        capacity: bytes; 0 keeps nothing.
    """

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity, lambda document: document.nbytes + DOCUMENT_ENTRY_BYTES)
