"""Rows of different lengths in flat arrays, as of the tokens of each word; some grow while other threads read them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int32]


class Rows(NamedTuple):
    """Rows of values, one behind the other.

    Attributes:
        counts: shape (n_rows,), how many values each has.
        columns: shape (n_values,) each, what is said of the values.
    """

    counts: Ints
    columns: tuple[NDArray[Any], ...]

    def only(self, kept: NDArray[np.bool_]) -> "Rows":
        """The rows where the flags, shape (n_rows,), are true."""
        values = np.repeat(kept, self.counts)
        return Rows(self.counts[kept], tuple(column[values] for column in self.columns))

    def filled(self, at: NDArray[np.intp], more: "Rows") -> "Rows":
        """With `more` as the rows `at`, ascending, which were empty."""
        counts = self.counts.copy()
        counts[at] = more.counts
        places = np.repeat((np.cumsum(self.counts) - self.counts)[at], more.counts)
        pairs = zip(self.columns, more.columns, strict=True)
        return Rows(counts, tuple(np.insert(column, places, values) for column, values in pairs))


def stacked(several: Sequence[Rows]) -> Rows:
    """The rows of all of at least one, in order."""
    columns = zip(*(rows.columns for rows in several), strict=True)
    return Rows(np.concatenate([rows.counts for rows in several]), tuple(map(np.concatenate, columns)))


@dataclass(frozen=True, slots=True)
class Growing:
    """The first `size` values of an array, which may have room for more.

    Only the newest of those that share an array may be appended to, by one thread at a time: nobody else sees a change.
    """

    array: NDArray[Any]
    size: int

    @classmethod
    def of(cls, values: NDArray[Any]) -> Self:
        """All of an array."""
        return cls(values, len(values))

    def appended(self, more: NDArray[Any]) -> "Growing":
        """With `more` at the end; it takes time in proportion to `more`, over many calls."""
        array, size = self.array, self.size + len(more)
        if size > len(array):
            array = np.empty(size + size // 2, array.dtype)
            array[: self.size] = self.array[: self.size]
        array[self.size : size] = more
        return Growing(array, size)


class GrowingRows(NamedTuple):
    """Rows that may be appended to; see Growing.

    Attributes:
        firsts, counts: of each row: its first value, and how many it has.
        columns: what is said of the values.
    """

    firsts: Growing
    counts: Growing
    columns: tuple[Growing, ...]

    @classmethod
    def of(cls, rows: Rows) -> Self:
        """Of these rows."""
        firsts = np.cumsum(rows.counts, dtype=np.int32) - rows.counts
        return cls(Growing.of(firsts), Growing.of(rows.counts), tuple(map(Growing.of, rows.columns)))

    def appended(self, rows: Rows) -> "GrowingRows":
        """With these rows at the end."""
        firsts = self.columns[0].size + np.cumsum(rows.counts, dtype=np.int32) - rows.counts
        pairs = zip(self.columns, rows.columns, strict=True)
        columns = tuple(column.appended(values) for column, values in pairs)
        return GrowingRows(self.firsts.appended(firsts), self.counts.appended(rows.counts), columns)

    def taken(self, numbers: Ints) -> Rows:
        """The rows with these numbers, shape (n,), in this order."""
        counts, firsts = self.counts.array[numbers], self.firsts.array[numbers]
        places = firsts if (counts == 1).all() else _ranges(firsts, counts)
        return Rows(counts, tuple(column.array[places] for column in self.columns))


def _ranges(firsts: Ints, counts: Ints) -> NDArray[np.intp]:
    """The integers ``firsts[i] : firsts[i] + counts[i]`` of all i, one behind the other."""
    ends = np.cumsum(counts, dtype=np.intp)
    found: NDArray[np.intp] = np.repeat(firsts - (ends - counts), counts)
    found += np.arange(len(found))
    return found
