"""What a selection says of its blocks, by hand."""

import numpy as np
import pytest

from keyblock.packing import Packed
from keyblock.pipeline import BlockScores, Chosen, Pipeline, Selection, Shortlist, single_reach
from keyblock.prepared import PreparedDocument

INF = float("inf")


def packed(n_tokens: int, *, cut: bool = False) -> Packed:
    return Packed(np.zeros(n_tokens, np.int32), 1, np.zeros(0, np.intp), cut)


def numbers(*values: float) -> np.ndarray:
    return np.asarray(values, dtype=np.float64)


@pytest.fixture(scope="module")
def three(fine: Pipeline) -> PreparedDocument:
    """A document of three blocks."""
    document = fine.prepare_document("The river flooded. The bridge stood. The city sank.")
    assert document.n_blocks == 3
    return document


def test_blocks_that_the_model_did_not_read_have_no_score() -> None:
    shortlist = Shortlist(BlockScores(numbers(3, 2, 1, 0), numbers(3, 2, 1, 0)), np.asarray([1, 3]), [packed(7), packed(9)])
    assert shortlist.n_tokens == 16
    assert shortlist.scored(np.asarray([-0.5, 4.0])).tolist() == [-INF, -0.5, -INF, 4.0]


@pytest.mark.parametrize(
    ("taken", "cut", "everything"), [([2, 0, 1], False, True), ([2, 0, 1], True, False), ([2, 0], False, False)]
)
def test_nothing_was_chosen_where_each_block_is_read_in_full(
    three: PreparedDocument, taken: list[int], cut: bool, everything: bool
) -> None:
    blocks = np.asarray(taken)
    assert Chosen([packed(20, cut=cut)], blocks, single_reach(blocks)).is_all_of(three) == everything


def test_of_one_block_there_is_no_choice(fine: Pipeline) -> None:
    document = fine.prepare_document("River.")
    assert document.n_blocks == 1
    assert Chosen([packed(20, cut=True)], np.asarray([0]), single_reach(np.asarray([0]))).is_all_of(document)


def test_what_the_model_says_of_its_passages_orders_them() -> None:
    """Blocks 5, 1 and 3 by the selector; the passages stand in document order: 1, 3, 5."""
    taken = np.asarray([5, 1, 3])
    selection = Selection([packed(4)] * 3, taken, numbers(0, 7, 0, 6, 0, 9), numbers(0, 0, 0), single_reach(taken))
    decided = selection.decided(np.asarray([0.1, 0.9, 0.5], dtype=np.float32))
    assert decided.taken.tolist() == [3, 5, 1]
    assert decided.reach.tolist() == [[3, 4], [5, 6], [1, 2]]
    assert decided.scores.tolist() == pytest.approx([0, 0.1, 0, 0.9, 0, 0.5])
