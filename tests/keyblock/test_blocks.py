"""The splitter against a slow, obvious dynamic program written from the paper's rules."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from keyblock.blocks import SEGMENTERS, CogLtxSegmenter, Segmenter, cut_candidates, cut_costs, split
from keyblock.tokenization import Tokenizer

COSTS = st.lists(st.sampled_from([0] * 12 + [1, 1, 2]), max_size=400).map(lambda costs: np.asarray(costs, dtype=np.int64))
DENSE = st.lists(st.sampled_from([0, 1, 2]), max_size=200).map(lambda costs: np.asarray(costs, dtype=np.int64))


def slow_candidates(costs: list[int], longest: int) -> list[tuple[int, int]]:
    """(place, cost), by walking the tokens: a cut is forced when `longest` of them passed since the last place."""
    places, last = [(0, 0)], 0
    for token, cost in enumerate(costs):
        place = token + 1
        if cost:
            places.append((place, cost))
            last = place
        elif place == len(costs):
            places.append((place, 0))
        elif place - last == longest:
            places.append((place, 8))
            last = place
    return places


def slow_split(costs: list[int], longest: int) -> list[int]:
    """``best[i] = min over j < i with p_i - p_j <= longest of best[j] + cost_i + 4``; on a tie the nearest j wins."""
    places = slow_candidates(costs, longest)
    best: list[tuple[int, list[int]]] = [(0, [0])]
    for i in range(1, len(places)):
        place, cost = places[i]
        ways = [(best[j][0] + cost + 4, -places[j][0], [*best[j][1], place]) for j in range(i) if place - places[j][0] <= longest]
        total, _, path = min(ways)
        best.append((total, path))
    return best[-1][1]


@given(COSTS | DENSE, st.integers(1, 70))
def test_split_equals_the_slow_program(costs: NDArray[np.int64], longest: int) -> None:
    assert split(costs, longest).tolist() == slow_split(costs.tolist(), longest)


@given(COSTS | DENSE, st.integers(1, 70))
def test_candidates_equal_the_slow_walk(costs: NDArray[np.int64], longest: int) -> None:
    places, prices = cut_candidates(costs, longest)
    slow = slow_candidates(costs.tolist(), longest)
    assert list(zip(places, prices, strict=True)) == slow


@given(COSTS | DENSE, st.integers(1, 70))
def test_blocks_tile_the_tokens_and_none_is_too_long(costs: NDArray[np.int64], longest: int) -> None:
    bounds = split(costs, longest)
    assert bounds[0] == 0
    assert bounds[-1] == len(costs)
    assert bounds.dtype == np.int32
    lengths = np.diff(bounds)
    assert (lengths >= 1).all()
    assert (lengths <= longest).all()


def test_a_period_every_ten_tokens() -> None:
    """The hand-worked example of the methods page: (0, 60), (60, 100)."""
    costs = np.asarray(([0] * 9 + [1]) * 10)
    assert split(costs).tolist() == [0, 60, 100]


def test_a_sentence_end_is_cheaper_than_a_comma() -> None:
    """70 tokens need one cut: at the comma after 40 it costs 2, at the period after 20 only 1."""
    costs = np.zeros(70, dtype=np.int64)
    costs[39], costs[19] = 2, 1
    assert split(costs).tolist() == [0, 20, 70]
    costs[19] = 0
    assert split(costs).tolist() == [0, 40, 70]


def test_one_long_sentence_is_cut_by_force() -> None:
    assert split(np.zeros(200, dtype=np.int64)).tolist() == [0, 63, 126, 189, 200]
    assert split(np.zeros(63, dtype=np.int64)).tolist() == [0, 63]
    assert split(np.zeros(64, dtype=np.int64)).tolist() == [0, 63, 64]


def test_no_token_no_block() -> None:
    assert split(np.zeros(0, dtype=np.int64)).tolist() == [0]


def test_half_a_million_tokens_without_punctuation() -> None:
    """Crashes the authors' code at about 525,000."""
    bounds = split(np.zeros(530_000, dtype=np.int64))
    assert len(bounds) - 1 == -(-530_000 // 63)
    assert np.diff(bounds)[:-1].tolist() == [63] * (len(bounds) - 2)


def test_nothing_but_punctuation() -> None:
    bounds = split(np.ones(300_000, dtype=np.int64))
    assert len(bounds) - 1 == -(-300_000 // 63)


def test_costs_follow_the_tokenizer(tokenizer: Tokenizer) -> None:
    costs = cut_costs(tokenizer)
    assert costs.shape == (30522,)
    assert {surface: costs[tokenizer.ids(surface)].tolist() for surface in (".", "?", "!", ",", ";", "word")} == {
        ".": [1],
        "?": [1],
        "!": [1],
        ",": [2],
        ";": [0],
        "word": [0],
    }
    assert np.count_nonzero(costs) == 4


def test_the_segmenter_cuts_as_split_does() -> None:
    costs = np.asarray(([0] * 9 + [1]) * 10)
    segmenter = SEGMENTERS.create({"name": "cogltx", "block_tokens": 25})
    assert segmenter.bounds(costs).tolist() == split(costs, 25).tolist() == [0, 20, 40, 60, 80, 100]
    assert CogLtxSegmenter().describe() == {"name": "cogltx", "block_tokens": 63}


def test_an_unfinished_segmenter_says_so() -> None:
    with pytest.raises(TypeError, match="Segmenter does not say how it cuts"):
        Segmenter().bounds(np.zeros(3, dtype=np.int64))
