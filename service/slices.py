"""Consecutive slices of many documents, none too long: what is prepared, or read from the store, in one step."""

from collections.abc import Iterator, Sequence


def slices(sizes: Sequence[int], most: int, most_together: int) -> Iterator[range]:
    """The documents' numbers in order, in ranges that are as long as they may be.

    Args:
        sizes: of the documents, in any unit.
        most: documents of a slice.
        most_together: the size of a slice, in that unit; a larger document is a slice alone.
    """
    start = taken = 0
    for number, size in enumerate(sizes):
        if number > start and (number - start == most or taken + size > most_together):
            yield range(start, number)
            start, taken = number, 0
        taken += size
    if start < len(sizes):
        yield range(start, len(sizes))
