"""Positions of selected blocks by hand."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.evaluation.positions import RANKS, BlockPlace, block_places, position, position_shares, start_shares, told_ranks


def test_the_paper_s_example() -> None:
    """KeyB, section 3.2: "the fifth block in a document containing 100 blocks is in the first position"."""
    assert position(5, 100) == 1


@given(st.integers(15, 500))
def test_first_and_last_block_stand_at_the_ends_of_any_document_of_fifteen(blocks: int) -> None:
    """And no position is missing: the paper's reason to leave shorter ones out."""
    positions = [position(number, blocks) for number in range(1, blocks + 1)]
    assert (positions[0], positions[-1]) == (1, 10)
    assert set(positions) == set(range(1, 11))
    assert positions == sorted(positions)


def test_a_block_of_no_length_has_a_position_too() -> None:
    assert position(0, 100) == 1
    assert position(101, 100) == 10


def test_places_by_hand() -> None:
    """Blocks come best first; the short document is left out; grade 0 and no grade are not relevant."""
    blocks = {
        "q": {"long": [(800, 900), (0, 100)], "short": [(0, 50)], "zero": [(100, 200)]},
        "r": {"long": []},
        "s": {"long": [(0, 10)]},
    }
    lengths = {"long": 1000, "short": 99, "zero": 400}
    assert block_places(blocks, lengths, {"q": {"long": 2, "zero": 0}}, shortest=100) == [
        BlockPlace(1, 9, 800, True),
        BlockPlace(2, 1, 0, True),
        BlockPlace(1, 5, 100, False),
        BlockPlace(1, 1, 0, False),
    ]


def test_shares_by_hand() -> None:
    """Rank 1: three blocks, two of them at position 1. Rank 2: one. Rank 3: none. Rank 4 is not asked for."""
    places = [BlockPlace(rank, where, 0, True) for rank, where in ((1, 1), (1, 1), (1, 4), (2, 2), (4, 3))]
    shares = position_shares(places, ranks=3, positions=4)
    assert shares == pytest.approx(np.array([[2 / 3, 0, 0, 1 / 3], [0, 1, 0, 0], [0, 0, 0, 0]]))
    assert position_shares([]).tolist() == np.zeros((8, 10)).tolist()


def test_starts_by_hand() -> None:
    places = [BlockPlace(1, 1, start, False) for start in (0, 5, 10, 25)]
    assert start_shares(places, np.array([0.0, 10.0, 20.0, 30.0])).tolist() == [0.5, 0.25, 0.25]
    assert start_shares([], np.array([0.0, 10.0])).tolist() == [0.0]


def test_ranks_that_few_documents_reach_are_left_out() -> None:
    def of(*counts: int) -> list[BlockPlace]:
        return [BlockPlace(rank, 1, 0, False) for rank, count in enumerate(counts, 1) for _ in range(count)]

    assert told_ranks(of(100, 60, 6, 5)) == 3
    assert told_ranks(of(*[10] * 12)) == RANKS
    assert told_ranks([]) == 1
