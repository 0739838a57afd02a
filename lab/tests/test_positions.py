"""Positions of selected blocks by hand."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.text.tokenizer import Tokenizer
from lab.positions import (
    RANKS,
    BlockPlace,
    GoldPlace,
    block_places,
    by_chunk,
    chunk,
    chunk_shares,
    drawn_ranks,
    gold_places,
    position,
    position_shares,
    start_shares,
)
from tests.training.collections.passages import write_collection
from training.data.collection import Collection
from training.data.types import CollectionError


def test_the_paper_s_example() -> None:
    """KeyB, section 3.2: "the fifth block in a document containing 100 blocks is in the first position"."""
    assert position(5, 100) == 1


@given(st.integers(15, 500))
def test_first_and_last_block_stand_at_the_ends_of_any_document_of_fifteen(blocks: int) -> None:
    """No position is missing, which is the paper's reason to leave shorter documents out."""
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

    assert drawn_ranks(of(100, 60, 6, 5)) == 3
    assert drawn_ranks(of(*[10] * 12)) == RANKS
    assert drawn_ranks([]) == 1


TEXT = "The river, swollen: unbelievably swollen.\n\nNobody crossed the bridge"


def test_gold_places_by_hand(tmp_path: Path, tokenizer: Tokenizer) -> None:
    """The river , swollen : un ##bel ##ie ##va ##bly swollen . nobody crossed the bridge: 16 tokens."""
    ids = [TEXT.index("Nobody"), len(TEXT), TEXT.index("unbel"), TEXT.index("unbel") + 12]
    spans = [("q", "d", ids[0], ids[1]), ("q", "d", ids[2], ids[3]), ("r", "d", 3, 4), ("s", "d", len(TEXT), len(TEXT) + 9)]
    path = write_collection(tmp_path / "c", {"d": TEXT}, {q: ["d"] for q in "qrs"}, {"dev": list("qrs")}, spans)
    places = gold_places(Collection(path), ["s", "q", "none", "r"], tokenizer)
    assert places == [
        GoldPlace("s", "d", 16, 16, 16),  # behind the end
        GoldPlace("q", "d", 12, 16, 16),
        GoldPlace("q", "d", 5, 10, 16),
        GoldPlace("r", "d", 1, 1, 16),  # white space: between two tokens
    ]
    assert [place.last for place in places] == [16, 15, 9, 1]


def test_a_span_of_a_missing_document_is_named(tmp_path: Path, tokenizer: Tokenizer) -> None:
    path = write_collection(tmp_path / "c", {"d": TEXT}, {"q": ["d"]}, {"dev": ["q"]}, [("q", "gone", 0, 3)])
    with pytest.raises(CollectionError, match="'gone'"):
        gold_places(Collection(path), ["q"], tokenizer)


@given(st.text(alphabet="ab un.\n", max_size=60), st.integers(0, 60), st.integers(1, 20))
def test_gold_places_as_a_loop_counts_them(
    tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer, text: str, start: int, length: int
) -> None:
    path = tmp_path_factory.mktemp("places") / "c"
    collection = Collection(write_collection(path, {"d": text}, {"q": ["d"]}, {"dev": ["q"]}, [("q", "d", start, start + length)]))
    (place,) = gold_places(collection, ["q"], tokenizer)
    (encoding,) = tokenizer.encode([text])
    assert place.start == sum(end <= start for _, end in encoding.offsets)
    assert place.end == sum(first < start + length for first, _ in encoding.offsets)


def test_chunks_by_hand() -> None:
    assert [chunk(token) for token in (0, 476, 477, 953, 954)] == [1, 1, 2, 2, 3]
    assert chunk_shares([0, 9, 10, 29, 30, 99], size=10, chunks=3) == pytest.approx(np.array([2, 1, 1, 2]) / 6)
    assert chunk_shares([], chunks=2).tolist() == [0, 0, 0]


def test_values_by_chunk_by_hand() -> None:
    """A query counts where its first passage begins; one without a passage or a value does not count."""
    starts = {"q": [25, 9], "r": [10], "s": [500], "unmeasured": [0]}
    places = [GoldPlace(query, "d", start, start + 1, 600) for query, of_query in starts.items() for start in of_query]
    values = {"q": 1.0, "r": 0.5, "s": 0.25, "without": 0.0}
    assert by_chunk(values, places, size=10, chunks=3) == [[1.0], [0.5], [], [0.25]]
