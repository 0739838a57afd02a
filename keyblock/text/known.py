"""Words that are known, found by their hashes; threads look words up while one of them adds more."""

import threading
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from keyblock.text.hashing import Hashes
from keyblock.text.rows import Growing, GrowingRows, Ints, Rows

SPREAD = np.uint64(0x9E3779B97F4A7C15)  # 2^64 divided by the golden ratio: the top bits of a product with it are well mixed
SLOTS = 1 << 15  # of a new table


@dataclass(frozen=True, slots=True)
class Words:
    """What is known of words, by their numbers. Number 0 is none: it has no token, and one key, 0.

    Attributes:
        hashes: of each word; 0 for number 0.
        tokens: of each word; columns: ids, and the characters of the word where they start and end.
        keys: of each word; one column, the keys of its terms, or a single 0 where it has none.
        slots: shape (a power of two,), the words' numbers by their hashes, with open addressing; 0 where there is none. Numbers
            from `size` on are of words that were added since: to these words their slots are free.
    """

    hashes: Growing
    tokens: GrowingRows
    keys: GrowingRows
    slots: Ints

    @classmethod
    def none(cls) -> Self:
        """No word."""
        nothing = np.zeros(0, np.int32)
        tokens = GrowingRows.of(Rows(np.zeros(1, np.int32), (nothing, nothing, nothing)))
        keys = GrowingRows.of(Rows(np.ones(1, np.int32), (np.zeros(1, np.int64),)))
        return cls(Growing.of(np.zeros(1, np.uint64)), tokens, keys, np.zeros(SLOTS, np.int32))

    @property
    def size(self) -> int:
        """How many numbers."""
        return self.hashes.size

    def find(self, hashes: Hashes) -> Ints:
        """The number of each word, shape (n,); 0 where it is unknown."""
        at = _first_slots(hashes, len(self.slots))
        found = self._in_slots(at)
        other = self.hashes.array[found] != hashes
        rest = np.flatnonzero(other & (found != 0))
        found[other] = 0
        while len(rest):
            at[rest] = (at[rest] + 1) % len(self.slots)
            met = self._in_slots(at[rest])
            hit = self.hashes.array[met] == hashes[rest]
            found[rest[hit]] = met[hit]
            rest = rest[~hit & (met != 0)]
        return found

    def _in_slots(self, at: NDArray[np.intp]) -> Ints:
        numbers: Ints = self.slots[at]
        numbers[numbers >= self.size] = 0
        return numbers

    def added(self, hashes: Hashes, tokens: Rows, keys: Rows) -> "Words":
        """With more words, whose hashes, shape (n,), are new and distinct. Only the newest words may be added to; see Growing."""
        known, size = self.hashes.appended(hashes), len(self.slots)
        while size < 3 * known.size:
            size *= 2
        if size == len(self.slots):
            slots, first = self.slots, self.size
        else:
            slots, first = np.zeros(size, np.int32), 1
        _place(slots, known.array[first : known.size], np.arange(first, known.size, dtype=np.int32))
        return Words(known, self.tokens.appended(tokens), self.keys.appended(keys), slots)


def _first_slots(hashes: Hashes, size: int) -> NDArray[np.intp]:
    return ((hashes * SPREAD) >> np.uint64(64 - size.bit_length() + 1)).astype(np.intp)


def _place(slots: Ints, hashes: Hashes, numbers: Ints) -> None:
    """Write distinct numbers, shape (n,), into free slots."""
    at, rest = _first_slots(hashes, len(slots)), np.arange(len(hashes))
    while len(rest):
        free = rest[slots[at[rest]] == 0]
        slots[at[free]] = numbers[free]  # of several that want one slot the last gets it
        rest = rest[slots[at[rest]] != numbers[rest]]
        at[rest] = (at[rest] + 1) % len(slots)


class Known:
    """Words that threads share. `words` are the newest; what was looked up in older ones holds for them, too."""

    def __init__(self) -> None:
        self.words = Words.none()
        self._lock = threading.Lock()

    def add(self, hashes: Hashes, tokens: Rows, keys: Rows) -> None:
        """Add words, whose hashes, shape (n,), are distinct, unless another thread was first."""
        with self._lock:
            new = self.words.find(hashes) == 0
            self.words = self.words.added(hashes[new], tokens.only(new), keys.only(new))
