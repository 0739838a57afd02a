"""Packing a query and its selected blocks into one sequence of a token budget (KeyB section 4.1, step 3).

``[CLS] query [SEP] title blocks in document order [SEP]``. Blocks are taken by descending score until the budget is reached;
the last one TAKEN is truncated, wherever it stands in the document (the paper's equation; its code crops the last in order).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.text.tokenizer import PairTemplate


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """One model input.

    Attributes:
        ids: shape (length,), token ids with specials.
        split: where the second segment starts: ``ids[split:]`` has the document's type id.
        taken: shape (n_taken,), block numbers, best first; the last may stand in `ids` in part.
        cut: whether it does.
        weight: above 0, what it counts for among its document's; for an aggregator that weighs sequences.
        logit: what stored vectors say of it, which then has no token ids: nothing reads it; None where a model does.
    """

    ids: NDArray[np.int32]
    split: int
    taken: NDArray[np.intp]
    cut: bool = False
    weight: float = 1.0
    logit: float | None = None


def weights_of(packed: Sequence[Packed]) -> NDArray[np.float32]:
    """What each sequence counts for among its document's, shape (n_sequences,)."""
    return np.asarray([one.weight for one in packed], np.float32)


def take_blocks(lengths: NDArray[np.int32], order: NDArray[np.intp], room: int) -> tuple[NDArray[np.intp], int]:
    """The best blocks that fit `room` tokens, and how many tokens the last of them may keep.

    Args:
        lengths: shape (n_blocks,), tokens of each block.
        order: shape (n_blocks,), block numbers, best first.
        room: tokens there are.

    Returns:
        Shape (n_taken,) block numbers, best first, and the tokens kept of the last one (0 when none is taken).
    """
    if room <= 0 or not len(order):
        return order[:0], 0
    filled = np.cumsum(lengths[order])
    n_taken = min(int(np.searchsorted(filled, room)) + 1, len(order))
    before = int(filled[n_taken - 2]) if n_taken > 1 else 0
    last = int(order[n_taken - 1])
    return order[:n_taken], min(int(lengths[last]), room - before)


def room_beside(query: PreparedQuery, document: PreparedDocument, template: PairTemplate, budget: int) -> tuple[int, int]:
    """How many tokens of the title, and of the text, a sequence of `budget` tokens may have beside the query.

    Raises ValueError when the query leaves no room for a token of the document.
    """
    room = room_in(query, template, budget)
    title = min(len(document.title_ids), room // 2)
    return title, room - title


def room_in(query: PreparedQuery, template: PairTemplate, budget: int) -> int:
    """How many tokens of a document a sequence of `budget` tokens may have beside the query. Raises ValueError where it is none."""
    room = budget - template.overhead - len(query.token_ids)
    if room < 1:
        asked = f"{len(query.token_ids)} query and {template.overhead} special tokens"
        raise ValueError(f"a budget of {budget} tokens has no room beside {asked}")
    return room


def grow(bounds: NDArray[np.int32], scores: NDArray[np.float64], order: NDArray[np.intp], room: int, most: int) -> NDArray[np.intp]:
    """Passages around the best blocks: each takes in whole neighbours, the better side first, as long as they fit `room` tokens.

    Passages never share a block: one that a better passage took in starts none of its own. Equal sides take turns by their tokens,
    so that a block between blocks without a query term stands in the middle.

    Args:
        bounds: shape (n_blocks, 2), the token range of each block.
        scores: shape (n_blocks,), the selector's.
        order: shape (n_blocks,), block numbers, best first.
        room: tokens a passage may have; a block that is longer stays alone, and is cut when it is packed.
        most: passages; 0 for as many as there are.

    Returns:
        Shape (n_passages, 3): the block that the passage grew from, its first block, and the one behind its last; best first.
    """
    free = np.ones(len(bounds), dtype=np.bool_)
    passages: list[tuple[int, int, int]] = []
    for seed in order.tolist():
        if most and len(passages) == most:
            break
        if free[seed]:
            first, end = _grown(bounds, scores, free, seed, room)
            free[first:end] = False
            passages.append((seed, first, end))
    return np.asarray(passages, dtype=np.intp).reshape(-1, 3)


def _grown(
    bounds: NDArray[np.int32], scores: NDArray[np.float64], free: NDArray[np.bool_], seed: int, room: int
) -> tuple[int, int]:
    """The first block of the passage around `seed`, and the one behind its last."""
    first, end = seed, seed + 1
    while True:
        head, tail = int(bounds[first, 0]), int(bounds[end - 1, 1])
        before = first > 0 and free[first - 1] and tail - int(bounds[first - 1, 0]) <= room
        after = end < len(bounds) and free[end] and int(bounds[end, 1]) - head <= room
        if before and after:
            left, right = scores[first - 1], scores[end]
            shorter = int(bounds[seed, 0]) - head < tail - int(bounds[seed, 1])
            before = bool(left > right or (left == right and shorter))
        if before:
            first -= 1
        elif after:
            end += 1
        else:
            return first, end


def pack_passage(
    query: PreparedQuery, document: PreparedDocument, passage: tuple[int, int, int], template: PairTemplate, budget: int
) -> Packed:
    """The query with one of the passages that `grow` gives, in at most `budget` tokens. Raises ValueError as `pack` does."""
    seed, first, end = passage
    title, room = room_beside(query, document, template, budget)
    head, tail = int(document.bounds[first, 0]), int(document.bounds[end - 1, 1])
    text = [document.title_ids[:title], document.token_ids[head : min(tail, head + room)]]
    return _sequence(query, text, template, np.asarray([seed], dtype=np.intp), cut=tail - head > room)


def pack(query: PreparedQuery, document: PreparedDocument, order: NDArray[np.intp], template: PairTemplate, budget: int) -> Packed:
    """Pack one pair into at most `budget` tokens.

    Args:
        query: its tokens are all kept (they were capped when it was prepared).
        document: its title may take half of the room beside the query.
        order: shape (n_blocks,), block numbers, best first.
        template: the special tokens.
        budget: tokens the sequence may have, specials included.

    Raises ValueError when the query leaves no room for a token of the document.
    """
    titled, room = room_beside(query, document, template, budget)
    lengths = document.bounds[:, 1] - document.bounds[:, 0]
    taken, kept = take_blocks(lengths, order, room)
    text = [document.title_ids[:titled]]
    for block in np.sort(taken).tolist():
        start, end = document.bounds[block].tolist()
        if block == taken[-1]:
            end = start + kept
        text.append(document.token_ids[start:end])
    return _sequence(query, text, template, taken, cut=bool(len(taken)) and kept < int(lengths[taken[-1]]))


class Piece(NamedTuple):
    """A chosen block in a sequence.

    Attributes:
        block: its number among the chosen ones.
        at: where its first token stands in the sequence.
        tokens: how many of its tokens stand there.
    """

    block: int
    at: int
    tokens: int


def pieces(
    packed: Packed, blocks: NDArray[np.intp], lengths: NDArray[np.int32], starts: NDArray[np.int32], title: int, after: int
) -> Iterator[Piece]:
    """Where the tokens of each block stand in a sequence, in document order; none of a block that was cut off whole.

    Args:
        packed: what `pack` or `pack_passage` made.
        blocks: shape (n,), the blocks in it, best first: the last is the one that is cut.
        lengths: of all chosen blocks, their tokens; a passage counts as one block.
        starts: of the same, where they start in the text.
        title: tokens that the document's title has.
        after: special tokens at the sequence's end.
    """
    room, due = len(packed.ids) - packed.split - after, int(lengths[blocks].sum())
    titled = min(title, room // 2) if packed.cut else room - due
    at, missing = packed.split + titled, due - (room - titled)
    for block in blocks[np.argsort(starts[blocks], kind="stable")].tolist():
        count = int(lengths[block]) - (missing if block == blocks[-1] else 0)
        if count > 0:
            yield Piece(block, at, count)
            at += count


def _sequence(
    query: PreparedQuery, text: list[NDArray[np.int32]], template: PairTemplate, taken: NDArray[np.intp], *, cut: bool
) -> Packed:
    """The query, and the pieces of the document's text, between the special tokens."""
    pieces = [np.asarray(template.before, np.int32), query.token_ids, np.asarray(template.between, np.int32)]
    split = sum(map(len, pieces))
    return Packed(np.concatenate([*pieces, *text, np.asarray(template.after, np.int32)]), split, taken, cut)
