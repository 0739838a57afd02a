"""Stores real sequences in a file: token ids, the start of the document, and the query of each."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from keyblock.packing import Packed


@dataclass
class Sequences:
    """Sequences of several queries.

    Attributes:
        packed: sequences as a bundle's pipeline packs them.
        queries: number of each sequence's query.
    """

    packed: list[Packed]
    queries: list[int]

    @classmethod
    def empty(cls) -> Self:
        """An object without sequences."""
        return cls([], [])

    def __len__(self) -> int:
        return len(self.packed)

    def add(self, query: int, packed: Sequence[Packed]) -> None:
        """Add the sequences of one query."""
        self.packed += packed
        self.queries += [query] * len(packed)

    def first(self, count: int) -> Self:
        """The first `count` sequences."""
        return type(self)(self.packed[:count], self.queries[:count])

    def save(self, path: Path) -> None:
        """Write the sequences to a file, which `load` reads."""
        np.savez_compressed(
            path,
            ids=np.concatenate([one.ids for one in self.packed]),
            lengths=np.asarray([len(one.ids) for one in self.packed]),
            splits=np.asarray([one.split for one in self.packed]),
            queries=np.asarray(self.queries),
        )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what `save` wrote."""
        with np.load(path) as stored:
            ids: list[NDArray[np.int32]] = np.split(stored["ids"], np.cumsum(stored["lengths"])[:-1])
            nothing = np.zeros(0, np.intp)
            packed = [Packed(one, int(split), nothing) for one, split in zip(ids, stored["splits"], strict=True)]
            return cls(packed, stored["queries"].tolist())
