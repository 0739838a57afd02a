"""The splitter against a slow, obvious dynamic program written from the paper's rules."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from keyblock.pipeline import Pipeline
from keyblock.segmenters import SEGMENTERS, cut_costs, split
from keyblock.text.reading import encoded
from keyblock.text.sentences import sentences
from keyblock.text.tokenizer import Tokenizer
from tests.keyblock.pipelines import make, slices_of

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


def test_half_a_million_tokens_without_punctuation() -> None:
    """Crashes the authors' code at about 525,000."""
    bounds = split(np.zeros(530_000, dtype=np.int64))
    assert len(bounds) - 1 == -(-530_000 // 63)
    assert np.diff(bounds)[:-1].tolist() == [63] * (len(bounds) - 2)


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


def ranges_of(costs: NDArray[np.int64], **description: Any) -> list[tuple[int, int]]:
    ranges = SEGMENTERS.create(description).ranges(costs)
    assert ranges.dtype == np.int32
    assert ranges.shape == (len(ranges), 2)
    return [(start, end) for start, end in ranges.tolist()]


def sentences_of(*lengths: int) -> NDArray[np.int64]:
    """Cut costs of sentences of these many tokens, each with a period at its end and a comma in front of it."""
    costs = np.zeros(sum(lengths), dtype=np.int64)
    costs[np.cumsum(lengths) - 1] = 1
    costs[[place for place in np.cumsum(lengths) - 2 if place >= 0 and not costs[place]]] = 2
    return costs


@pytest.mark.parametrize("description", [{"name": name} for name in SEGMENTERS.names()] + [{"name": "sentences", "shortest": 3}])
def test_every_segmenter_on_no_token_and_on_one(description: dict[str, Any]) -> None:
    assert ranges_of(np.zeros(0, dtype=np.int64), **description) == []
    assert ranges_of(np.zeros(1, dtype=np.int64), **description) == [(0, 1)]


def test_windows_by_hand() -> None:
    """PARADE's 225 tokens every 200: the third reaches the end of 625 with 225; of 626 a fourth must."""
    windows = {n: ranges_of(np.zeros(n, dtype=np.int64), name="window") for n in (225, 226, 625, 626)}
    assert windows[225] == [(0, 225)]
    assert windows[226] == [(0, 225), (200, 226)]
    assert windows[625] == [(0, 225), (200, 425), (400, 625)]
    assert windows[626] == [(0, 225), (200, 425), (400, 625), (600, 626)]


@pytest.mark.parametrize(
    ("description", "problem"),
    [
        (
            {"name": "window", "block_tokens": 50, "stride": 60},
            "stride 60 is longer than block_tokens 50: tokens between would be lost",
        ),
        ({"name": "sentences", "block_tokens": 40, "shortest": 41}, "shortest 41 exceeds block_tokens 40"),
    ],
)
def test_limits_that_do_not_go_together_are_refused(description: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        SEGMENTERS.create(description)


def test_segments_of_whole_sentences_by_hand() -> None:
    """Of at most 20 tokens: 8 + 9; 7 + 12; a sentence of 45 is cut after 20 and 40, and its last 5 go with the 10 that follow."""
    assert ranges_of(sentences_of(8, 9, 7, 12, 45, 10), name="sentences", block_tokens=20) == [
        (0, 17),
        (17, 36),
        (36, 56),
        (56, 76),
        (76, 91),
    ]


def slow_sentences(costs: list[int], limit: int) -> list[tuple[int, int]]:
    """Try every end within the limit, from the furthest: the text's own, then a sentence's; else cut at the limit."""
    ranges, start = [], 0
    while start < len(costs):
        ways = range(min(start + limit, len(costs)), start, -1)
        end = next((end for end in ways if end == len(costs) or costs[end - 1] == 1), start + limit)
        ranges.append((start, end))
        start = end
    return ranges


@given(COSTS | DENSE, st.integers(1, 70))
def test_segments_equal_the_slow_walk(costs: NDArray[np.int64], limit: int) -> None:
    assert ranges_of(costs, name="sentences", block_tokens=limit) == slow_sentences(costs.tolist(), limit)


@given(COSTS | DENSE, st.integers(1, 40), st.integers(0, 40))
def test_segments_of_drawn_lengths_tile_the_tokens_and_end_where_sentences_do(
    costs: NDArray[np.int64], shortest: int, wider: int
) -> None:
    longest = shortest + wider
    ranges = ranges_of(costs, name="sentences", block_tokens=longest, shortest=shortest)
    assert [start for start, _ in ranges] == [0, *(end for _, end in ranges)][: len(ranges)]
    assert not ranges or ranges[-1][1] == len(costs)
    for start, end in ranges:
        assert 1 <= end - start <= longest
        whole = end == len(costs) or costs[end - 1] == 1
        assert whole or (end - start >= shortest and not (costs[start:end] == 1).any()), "only a sentence of its own is cut"


DRAWN = {"name": "sentences", "block_tokens": 40, "shortest": 20}


def test_drawn_lengths_depend_on_the_document_alone_and_are_of_every_length() -> None:
    one, other = np.zeros(3000, dtype=np.int64), np.zeros(3000, dtype=np.int64)
    other[-1] = 1
    assert ranges_of(one, **DRAWN) == ranges_of(one.copy(), **DRAWN)
    assert ranges_of(one, **DRAWN) != ranges_of(other, **DRAWN)
    assert ranges_of(one, **DRAWN) != ranges_of(one, **DRAWN, seed=1)
    lengths = [end - start for start, end in ranges_of(np.zeros(30_000, dtype=np.int64), **DRAWN)][:-1]
    assert set(lengths) == set(range(20, 41)), "every length between the limits occurs"
    assert 29 < np.mean(lengths) < 31


@given(COSTS | DENSE, st.integers(1, 70))
def test_single_sentences_equal_a_slow_walk(costs: NDArray[np.int64], longest: int) -> None:
    """Sentence by sentence; one that is too long is split for itself by the slow program."""
    expected, start = [], 0
    for place in range(1, len(costs) + 1):
        if place == len(costs) or costs[place - 1] == 1:
            inside = costs[start:place].tolist() if place - start > longest else [0] * (place - start)
            expected += [(start + a, start + b) for a, b in pairwise(slow_split(inside, longest))]
            start = place
    assert ranges_of(costs, name="single_sentences", block_tokens=longest) == expected


def blocks_of(pipeline: Pipeline, text: str, **segmenter: Any) -> list[str]:
    """The texts of its blocks."""
    return slices_of(text, make(pipeline.tokenizer, pipeline.frequencies, segmenter=segmenter).prepare_document(text))


def test_each_sentence_is_a_block_however_short(pipeline: Pipeline) -> None:
    sentences = ["It rained.", "Why?", "Dr. Moss, who kept the gauge for 30 years, never learned it.", "He left."]
    assert blocks_of(pipeline, " ".join(sentences), name="single_sentences", block_tokens=30) == sentences


HATTER = (
    "It goes on, you know,' the Hatter continued, 'in this way:-\n\n\"Up above the world you fly,\nLike a tea-tray in the sky.\n"
    "Twinkle, twinkle-\"'\n\nHere the Dormouse shook itself, and began singing in its sleep 'Twinkle, twinkle, twinkle, twinkle-' "
    "and went on so long that they had to pinch it to make it stop.\n\n'Well, I'd hardly finished the first verse,' said the "
    "Hatter, 'when the Queen jumped up and bawled out, \"He's murdering the time! Off with his head!\"'\n\n'How dreadfully "
    "savage!' exclaimed Alice.\n"
)


def test_blocks_of_a_story_begin_with_its_sentences(pipeline: Pipeline) -> None:
    """The block that was best for a question about the Dormouse began with "twinkle-' and went on"."""
    blocks = blocks_of(pipeline, HATTER, name="whole_sentences")
    begin = [HATTER[start:] for start, _ in sentences(HATTER)]
    assert len(blocks) > 2
    assert all(any(rest.startswith(block) for rest in begin) for block in blocks)
    assert any("Dormouse shook itself" in block and "and went on so long" in block for block in blocks)


@pytest.mark.parametrize("opening", ["How long is the notice period?", "The notice period of the flat:"])
def test_what_leads_on_stays_with_the_sentence_behind_it(pipeline: Pipeline, opening: str) -> None:
    """Wherever the question would end a full block."""
    answer = "It is three months."
    for n in range(30, 70):
        blocks = blocks_of(pipeline, f"{'word ' * n}end. {opening}\n{answer} {'Other text. ' * 30}", name="whole_sentences")
        assert [answer in block for block in blocks if opening in block] == [True]


def test_commas_within_numbers_are_no_clauses(tokenizer: Tokenizer) -> None:
    text = "it cost 3,000 euros, he said; we paid"
    reading = encoded(text, tokenizer.encode([text])[0])
    costs = SEGMENTERS.create("whole_sentences").cut_costs(tokenizer)(reading)
    heads, tails = reading.places()
    assert [text[heads[i] : tails[i]] for i in np.flatnonzero(costs)] == [",", ";"]
    assert [int(heads[i]) for i in np.flatnonzero(costs)] == [text.index(", "), text.index(";")]


def test_structure_keeps_sentences_of_any_script_and_cuts_long_ones_at_commas(pipeline: Pipeline) -> None:
    """Eight characters a block: a sentence of four, one of four, and one of nine that has a comma behind its third."""
    blocks = blocks_of(pipeline, "一二三。四五六。一二，四五六七八。", name="structure", block_tokens=8)
    assert blocks == ["一二三。四五六。", "一二，", "四五六七八。"]


def test_structure_ends_blocks_where_parts_end(pipeline: Pipeline) -> None:
    """Of two ways to make two blocks the one that ends with the paragraph, and the heading goes with its text."""
    parts = ["One two. Three four.", "# Five\n\nSix seven. Eight nine."]
    assert blocks_of(pipeline, "\n\n".join(parts), name="structure", block_tokens=9) == parts
