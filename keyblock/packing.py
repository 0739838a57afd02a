"""Packing a query and its selected blocks into one sequence of a token budget (KeyB section 4.1, step 3).

``[CLS] query [SEP] title blocks in document order [SEP]``. Blocks are taken by descending score until the budget is reached;
the last one TAKEN is truncated, wherever it stands in the document (the paper's equation; its code crops the last in order).
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, Field, model_validator

from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.queries import LongQuery
from keyblock.text.tokenizer import PairTemplate


class PackingConfig(BaseModel):
    """How many tokens of the query, the title and the blocks a sequence holds."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    query_tokens: int = Field(48, ge=1, le=256, description="the most tokens of the query that are kept")
    long_query: LongQuery | None = Field(
        None, description="how to choose the key sentences of a query with more tokens; none: its first tokens are kept"
    )
    title_tokens: int = Field(16, ge=0, le=128, description="the most tokens of the title before the blocks; 0 leaves it out")
    budget: int = Field(128, ge=16, description="the most tokens of a sequence by default, specials included")
    budget_range: tuple[int, int] = Field((64, 256), description="budgets the model was measured at: no sequence is outside it")
    grow: bool = Field(
        False,
        description="if each chosen block is a separate sequence: it takes in whole neighbours as far as the budget allows",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        low, high = self.budget_range
        if not low <= self.budget <= high:
            raise ValueError(f"budget {self.budget} lies outside budget_range {low} to {high}")
        if low < self.longest_query + 8:
            raise ValueError(f"budget_range starts at {low}: no room for a block beside {self.longest_query} query tokens")
        return self

    @property
    def longest_query(self) -> int:
        """The most tokens that are kept of any query."""
        return max(self.query_tokens, self.long_query.tokens if self.long_query else 0)

    def kept_inside(self, requested: float | None) -> int:
        """The tokens a sequence may have: the requested number, clipped to `budget_range`; `budget` if none is requested."""
        low, high = self.budget_range
        return self.budget if requested is None else int(min(max(requested, low), high))


@dataclass(frozen=True, slots=True, eq=False)
class Packed:
    """One model input.

    Attributes:
        ids: shape (length,), token ids with specials.
        split: where the second segment starts: ``ids[split:]`` has the document's type id.
        taken: shape (n_taken,), block numbers, best first; `ids` may hold only a part of the last.
        cut: whether `ids` holds only a part of the last block.
        weight: above 0, its weight among the document's sequences, for an aggregator that weighs sequences.
        logit: the logit from stored vectors, in which case there are no token ids; None if a model reads the sequence.
    """

    ids: NDArray[np.int32]
    split: int
    taken: NDArray[np.intp]
    cut: bool = False
    weight: float = 1.0
    logit: float | None = None


def weights_of(packed: Sequence[Packed]) -> NDArray[np.float32]:
    """The weight of each sequence among its document's, shape (n_sequences,)."""
    return np.asarray([one.weight for one in packed], np.float32)


def take_blocks(lengths: NDArray[np.int32], order: NDArray[np.intp], room: int) -> tuple[NDArray[np.intp], int]:
    """The best blocks that fit into `room` tokens, and how many tokens of the last of them are kept.

    Args:
        lengths: shape (n_blocks,), tokens of each block.
        order: shape (n_blocks,), block numbers, best first.
        room: tokens available.

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

    Raises ValueError if the query leaves no room for a token of the document.
    """
    room = room_in(query, template, budget)
    title = min(len(document.title_ids), room // 2)
    return title, room - title


def room_in(query: PreparedQuery, template: PairTemplate, budget: int) -> int:
    """How many document tokens a sequence of `budget` tokens may have beside the query. Raises ValueError if there is no room."""
    room = budget - template.overhead - len(query.token_ids)
    if room < 1:
        needed = f"{len(query.token_ids)} query and {template.overhead} special tokens"
        raise ValueError(f"a budget of {budget} tokens has no room beside {needed}")
    return room


def grow(bounds: NDArray[np.int32], scores: NDArray[np.float64], order: NDArray[np.intp], room: int, most: int) -> NDArray[np.intp]:
    """Passages around the best blocks: each takes in whole neighbours, the better side first, while they fit into `room` tokens.

    Passages never share a block: a block inside a better passage starts no passage. If both sides score the same, the side with
    fewer tokens grows, so that a block between blocks without a query term stays in the middle.

    Args:
        bounds: shape (n_blocks, 2), the token range of each block.
        scores: shape (n_blocks,), the selector's scores.
        order: shape (n_blocks,), block numbers, best first.
        room: tokens a passage may have; a longer block stays alone, and is cut when it is packed.
        most: the most passages; 0 for no limit.

    Returns:
        Shape (n_passages, 3): the block that the passage grew from, its first block, and the one after its last; best first.
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
    """The first block of the passage around `seed`, and the one after its last."""
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
        query: all its tokens are kept (they were capped when it was prepared).
        document: its title may take half of the room beside the query.
        order: shape (n_blocks,), block numbers, best first.
        template: the special tokens.
        budget: tokens the sequence may have, specials included.

    Raises ValueError if the query leaves no room for a token of the document.
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
        block: its number among the chosen blocks.
        at: the position of its first token in the sequence.
        tokens: how many of its tokens the sequence holds.
    """

    block: int
    at: int
    tokens: int


def pieces(
    packed: Packed, blocks: NDArray[np.intp], lengths: NDArray[np.int32], starts: NDArray[np.int32], title: int, after: int
) -> Iterator[Piece]:
    """Where the tokens of each block are in a sequence, in document order; a block that was cut off completely is left out.

    Args:
        packed: the sequence, from `pack` or `pack_passage`.
        blocks: shape (n,), the blocks in it, best first: the last is the one that may be cut.
        lengths: tokens of all chosen blocks; a passage counts as one block.
        starts: offsets in the text at which all chosen blocks start.
        title: tokens of the document's title.
        after: number of special tokens at the sequence's end.
    """
    room, due = len(packed.ids) - packed.split - after, int(lengths[blocks].sum())
    titled = title_in(packed, due, title, after)
    at, missing = packed.split + titled, due - (room - titled)
    for block in blocks[np.argsort(starts[blocks], kind="stable")].tolist():
        count = int(lengths[block]) - (missing if block == blocks[-1] else 0)
        if count > 0:
            yield Piece(block, at, count)
            at += count


def title_in(packed: Packed, due: int, title: int, after: int) -> int:
    """How many tokens of the title a sequence holds.

    Args:
        packed: the sequence.
        due: tokens of its blocks, were none of them cut.
        title: tokens of the document's title.
        after: number of special tokens at the sequence's end.
    """
    room = len(packed.ids) - packed.split - after
    return min(title, room // 2) if packed.cut else room - due


def _sequence(
    query: PreparedQuery, text: list[NDArray[np.int32]], template: PairTemplate, taken: NDArray[np.intp], *, cut: bool
) -> Packed:
    """The query, and the pieces of the document's text, between the special tokens."""
    pieces = [np.asarray(template.before, np.int32), query.token_ids, np.asarray(template.between, np.int32)]
    split = sum(map(len, pieces))
    return Packed(np.concatenate([*pieces, *text, np.asarray(template.after, np.int32)]), split, taken, cut)
