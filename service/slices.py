"""Cuts many documents into consecutive slices of limited size, for one step of preparing or reading."""

from collections.abc import Iterator, Sequence


def slices(sizes: Sequence[int], max_documents: int, max_size: int) -> Iterator[range]:
    """The documents' numbers in order, in ranges that are as long as the limits allow.

    Args:
        sizes: of the documents, in any unit.
        max_documents: limit of a slice.
        max_size: limit of a slice's total size, in that unit; a larger document gets a slice of its own.
    """
    start = taken = 0
    for number, size in enumerate(sizes):
        if number > start and (number - start == max_documents or taken + size > max_size):
            yield range(start, number)
            start, taken = number, 0
        taken += size
    if start < len(sizes):
        yield range(start, len(sizes))
