"""Packing a query and its selected blocks into one sequence of a token budget (KeyB section 4.1, step 3).

``[CLS] query [SEP] title blocks in document order [SEP]``. Blocks are taken by descending score until the budget is reached;
the last one TAKEN is truncated, wherever it stands in the document (the paper's equation; its code crops the last in order).
"""

from dataclasses import dataclass

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
    """

    ids: NDArray[np.int32]
    split: int
    taken: NDArray[np.intp]
    cut: bool = False


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
    room = budget - template.overhead - len(query.token_ids)
    if room < 1:
        asked = f"{len(query.token_ids)} query and {template.overhead} special tokens"
        raise ValueError(f"a budget of {budget} tokens has no room beside {asked}")
    title = document.title_ids[: room // 2]
    lengths = document.bounds[:, 1] - document.bounds[:, 0]
    taken, kept = take_blocks(lengths, order, room - len(title))
    pieces = [np.asarray(template.before, np.int32), query.token_ids, np.asarray(template.between, np.int32)]
    split = sum(map(len, pieces))
    pieces.append(title)
    for block in np.sort(taken).tolist():
        start, end = document.bounds[block].tolist()
        if block == taken[-1]:
            end = start + kept
        pieces.append(document.token_ids[start:end])
    pieces.append(np.asarray(template.after, np.int32))
    return Packed(np.concatenate(pieces), split, taken, cut=bool(len(taken)) and kept < int(lengths[taken[-1]]))
