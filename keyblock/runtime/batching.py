"""Batches of a few fixed shapes: sequences sorted by length and padded to a bucket, with a limit on the rows of each bucket.

Every new (rows, length) shape costs a CPU session about 0.9 MB that it never frees, and makes a GPU session's arena grow. So the
shapes that a session sees are a small closed set: `shapes` lists it, and a warm-up can run all of it.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from keyblock.packing import Packed
from keyblock.scoring import Marks

LENGTHS = (32, 64, 96, 128, 160, 192, 256, 384, 512, 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192)
TOKEN_CAP = 4096
SPARE_TOKENS = 256  # padding rows of more tokens than this cost more than a second, smaller batch


class BatchTooLargeError(RuntimeError):
    """A batch of this shape does not fit into the device's memory; a smaller one may."""


class Scorer(Protocol):
    """What `score_all` needs of a session."""

    def score(self, ids: NDArray[np.int64], types: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """Logits of shape (batch,), or outputs of shape (batch, width), from three arrays of shape (batch, length).

        Raises BatchTooLargeError if the batch does not fit into memory.
        """


class Marker(Scorer, Protocol):
    """What `mark_all` needs of a session; see `keyblock.runtime.session.Session`."""

    marks: bool

    def mark(self, ids: NDArray[np.int64], types: NDArray[np.int64], mask: NDArray[np.int64]) -> Any:
        """`outputs` as `score` gives them, and `marks` (batch, length) or None."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Which sequences run together, and in which shape.

    Attributes:
        positions: the positions of its sequences in the planned list; at most `rows`.
        length: tokens that each row is padded to.
        rows: rows of the arrays; rows beyond the positions repeat a real one.
    """

    positions: tuple[int, ...]
    length: int
    rows: int


def bucket(length: int) -> int:
    """The length that a sequence of `length` tokens is padded to. Raises ValueError beyond the longest."""
    for fixed in LENGTHS:
        if length <= fixed:
            return fixed
    raise ValueError(f"a sequence of {length} tokens is longer than the longest bucket, {LENGTHS[-1]}; lower the budget")


def capped(longest: int = LENGTHS[-1], token_cap: int = TOKEN_CAP) -> dict[int, int]:
    """The most rows of each bucket up to that of the longest sequence: `token_cap` tokens at most, but at least one row."""
    return {length: max(1, token_cap // length) for length in LENGTHS if length <= bucket(longest)}


def row_counts(most: int) -> list[int]:
    """The row counts of a bucket's batches, ascending: the powers of two below `most`, then `most`."""
    return [2**power for power in range(most.bit_length()) if 2**power < most] + [most]


def shapes(most: Mapping[int, int]) -> list[tuple[int, int]]:
    """Every (rows, length) that `plan` makes, given the most rows of each bucket."""
    return [(rows, length) for length in sorted(most) for rows in row_counts(most[length])]


def plan(lengths: Sequence[int], most: Mapping[int, int] = MappingProxyType(capped())) -> list[Batch]:
    """Batches that cover every sequence once, shortest bucket first; stable within a bucket.

    Args:
        lengths: tokens of each sequence.
        most: the most rows of a batch, for each bucket that the sequences have.

    Raises:
        ValueError: a sequence is longer than the longest bucket.
    """
    by_bucket: dict[int, list[int]] = {}
    for position, length in enumerate(lengths):
        by_bucket.setdefault(bucket(length), []).append(position)
    return [batch for length in sorted(by_bucket) for batch in _cut(by_bucket[length], length, most[length])]


def _cut(positions: list[int], length: int, most: int) -> Iterator[Batch]:
    counts = row_counts(most)
    start = 0
    while start < len(positions):
        left = len(positions) - start
        rows = next((count for count in counts if count >= left), counts[-1])
        if (rows - left) * length > SPARE_TOKENS:
            rows = max(count for count in counts if count <= left)
        yield Batch(tuple(positions[start : start + rows]), length, rows)
        start += rows


def halves(batch: Batch) -> list[Batch]:
    """Split a batch of several rows into smaller ones whose row counts are powers of two, which `shapes` lists."""
    most = 1 << ((batch.rows - 1).bit_length() - 1)
    return list(_cut(list(batch.positions), batch.length, most))


def fill(
    batch: Batch, packed: Sequence[Packed], pad_id: int, document_type: int = 1
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Token ids, type ids and mask of a batch, each of shape (rows, length), padded on the right.

    Rows beyond the sequences repeat the first: fused attention gives garbage for a row of padding alone.

    Args:
        batch: from `plan`.
        packed: all planned sequences.
        pad_id: the padding token; masked.
        document_type: type id of the second segment; 0 for encoders with a single type.
    """
    ids = np.full((batch.rows, batch.length), pad_id, dtype=np.int64)
    types, mask = np.zeros_like(ids), np.zeros_like(ids)
    for row, position in enumerate(batch.positions):
        sequence = packed[position]
        n_tokens = len(sequence.ids)
        ids[row, :n_tokens] = sequence.ids
        types[row, sequence.split : n_tokens] = document_type
        mask[row, :n_tokens] = 1
    real = len(batch.positions)
    for array in (ids, types, mask):
        array[real:] = array[0]
    return ids, types, mask


def score_all(
    session: Scorer, packed: Sequence[Packed], pad_id: int = 0, document_type: int = 1, token_cap: int = TOKEN_CAP
) -> NDArray[np.float32]:
    """Logits of shape (n_sequences,), or outputs of shape (n_sequences, width), in the order given.

    A batch that does not fit into the device's memory runs in halves. Raises ValueError and what the session raises.
    """
    return _all(lambda *filled: (session.score(*filled),), packed, pad_id, document_type, token_cap)[0]


def mark_all(
    session: Marker, packed: Sequence[Packed], pad_id: int = 0, document_type: int = 1, token_cap: int = TOKEN_CAP
) -> Marks:
    """The outputs of `score_all`, and the marks of the tokens if the graph gives them; each batch runs once."""
    if not session.marks:
        return Marks(score_all(session, packed, pad_id, document_type, token_cap), None)

    def run(*filled: NDArray[np.int64]) -> tuple[NDArray[np.float32], ...]:
        outputs, marks = session.mark(*filled)
        if marks.shape[1] < longest:  # batches are of several lengths
            marks = np.pad(marks, ((0, 0), (0, longest - marks.shape[1])))
        return outputs, marks

    longest = max((batch.length for batch in plan([len(one.ids) for one in packed], capped(token_cap=token_cap))), default=0)
    outputs, *marks = _all(run, packed, pad_id, document_type, token_cap)
    return Marks(outputs, [of[: len(one.ids)] for one, of in zip(packed, marks[0], strict=True)] if marks else [])


Run = Callable[..., tuple[NDArray[np.float32], ...]]
"""Maps ids, types and mask, each of shape (batch, length), to arrays with a row for each sequence."""


def _all(run: Run, packed: Sequence[Packed], pad_id: int, document_type: int, token_cap: int) -> list[NDArray[np.float32]]:
    """The arrays that `run` gives for all sequences, in the order given; one empty array if there are no sequences."""
    batches = plan([len(sequence.ids) for sequence in packed], capped(token_cap=token_cap))
    if not batches:
        return [np.zeros(0, dtype=np.float32)]
    scored = [_run(run, batch, packed, pad_id, document_type) for batch in batches]
    given = np.argsort(np.concatenate([batch.positions for batch in batches]))
    return [np.concatenate(parts)[given] for parts in zip(*scored, strict=True)]


def _run(run: Run, batch: Batch, packed: Sequence[Packed], pad_id: int, document_type: int) -> tuple[NDArray[np.float32], ...]:
    """The arrays for a batch's sequences, in its order; in smaller batches if memory is too small."""
    try:
        return tuple(part[: len(batch.positions)] for part in run(*fill(batch, packed, pad_id, document_type)))
    except BatchTooLargeError:
        if batch.rows == 1:
            raise
        parts = [_run(run, half, packed, pad_id, document_type) for half in halves(batch)]
        return tuple(map(np.concatenate, zip(*parts, strict=True)))
