"""Packing against a slow, obvious version, and what a selection says of its blocks."""

from dataclasses import replace
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from keyblock.packing import Packed, grow, pack, pack_passage, room_beside
from keyblock.pipeline import BlockScores, Chosen, Selection, Shortlist, single_reach
from keyblock.prepared import PreparedDocument, PreparedQuery
from keyblock.segmenters import between
from keyblock.text.tokenizer import PairTemplate

CLS, SEP = 101, 102
TEMPLATE = PairTemplate((CLS,), (SEP,), (SEP,), 1)
ROBERTA = PairTemplate((0,), (2, 2), (2,), 0)
NO_TERMS = np.zeros(0, dtype=np.int64)


def query_of(n_tokens: int) -> PreparedQuery:
    return PreparedQuery(np.arange(500, 500 + n_tokens, dtype=np.int32), NO_TERMS)


def document_of(lengths: list[int], n_title: int = 0) -> PreparedDocument:
    """Tokens 1000, 1001, ... in blocks of these lengths; the title is 900, 901, ..."""
    n, bounds = len(lengths), np.cumsum([0, *lengths], dtype=np.int32)
    tokens = np.arange(1000, 1000 + sum(lengths), dtype=np.int32)
    no_terms = np.zeros(n + 1, dtype=np.int32)
    return PreparedDocument(
        tokens, between(bounds), bounds[:-1], bounds[1:], NO_TERMS, no_terms, np.arange(900, 900 + n_title, dtype=np.int32)
    )


def slow_pack(
    query: PreparedQuery, document: PreparedDocument, order: list[int], template: PairTemplate, budget: int
) -> tuple[list[int], list[int]]:
    """Take tokens block by block, best block first, until the sequence is full; then put the blocks in document order.

    The sequence's ids, and the blocks taken, best first.
    """
    sequence = [*template.before, *query.token_ids.tolist(), *template.between]
    room = budget - len(sequence) - len(template.after)
    title = document.title_ids.tolist()[: room // 2]
    room -= len(title)
    kept: dict[int, list[int]] = {}
    for block in order:
        for token in document.token_ids[slice(*document.bounds[block])].tolist():
            if room:
                kept.setdefault(block, []).append(token)
                room -= 1
    return [*sequence, *title, *(token for block in sorted(kept) for token in kept[block]), *template.after], list(kept)


@st.composite
def cases(draw: st.DrawFn) -> tuple[PreparedQuery, PreparedDocument, NDArray[np.intp], PairTemplate, int]:
    lengths = draw(st.lists(st.integers(1, 63), max_size=30))
    order = np.asarray(draw(st.permutations(range(len(lengths)))), dtype=np.intp)
    query, template = query_of(draw(st.integers(0, 48))), draw(st.sampled_from([TEMPLATE, ROBERTA]))
    least = len(query.token_ids) + template.overhead + 1
    budget = least + draw(st.integers(0, 300))
    return query, document_of(lengths, draw(st.integers(0, 16))), order, template, budget


@given(cases())
def test_pack_equals_the_slow_version(case: tuple[PreparedQuery, PreparedDocument, NDArray[np.intp], PairTemplate, int]) -> None:
    query, document, order, template, budget = case
    packed = pack(query, document, order, template, budget)
    assert packed.ids.dtype == np.int32
    assert (packed.ids.tolist(), packed.taken.tolist()) == slow_pack(query, document, order.tolist(), template, budget)
    assert len(packed.ids) <= budget
    assert packed.ids[: packed.split].tolist() == [*template.before, *query.token_ids.tolist(), *template.between]


def packed_of(lengths: list[int], order: list[int], budget: int, n_query: int = 2, n_title: int = 0) -> Packed:
    return pack(query_of(n_query), document_of(lengths, n_title), np.asarray(order, dtype=np.intp), TEMPLATE, budget)


def test_the_last_block_selected_is_cut_not_the_last_in_order() -> None:
    """Blocks of 4 tokens, best 2, then 0: block 0 is cut to 2 tokens although block 2 stands last."""
    packed = packed_of([4, 4, 4], [2, 0, 1], budget=11)
    assert packed.ids.tolist() == [CLS, 500, 501, SEP, 1000, 1001, 1008, 1009, 1010, 1011, SEP]
    assert packed.taken.tolist() == [2, 0]
    assert packed.split == 4


def test_the_title_stands_in_front_and_takes_half_of_the_room_at_most() -> None:
    assert packed_of([4, 4], [1, 0], budget=5 + 6, n_title=16).ids.tolist()[4:] == [900, 901, 902, 1004, 1005, 1006, SEP]


def test_a_budget_without_room_is_an_error() -> None:
    with pytest.raises(ValueError, match="a budget of 5 tokens has no room beside 2 query and 3 special tokens"):
        packed_of([3], [0], budget=5)
    assert packed_of([3], [0], budget=6, n_title=9).ids.tolist() == [CLS, 500, 501, SEP, 1000, SEP]


def test_blocks_that_overlap_are_each_packed_whole() -> None:
    """Windows 0:4, 2:6 and 4:8 of eight tokens; what two of them share stands in the sequence twice."""
    bounds = np.asarray([[0, 4], [2, 6], [4, 8]], dtype=np.int32)
    document = replace(document_of([4, 4, 4]), token_ids=np.arange(1000, 1008, dtype=np.int32), bounds=bounds)
    packed = pack(query_of(2), document, np.asarray([1, 0, 2]), TEMPLATE, 5 + 8)
    assert packed.ids.tolist() == [CLS, 500, 501, SEP, *range(1000, 1004), *range(1002, 1006), SEP]
    assert packed.taken.tolist() == [1, 0]
    tight = pack(query_of(2), document, np.asarray([2, 0, 1]), TEMPLATE, 5 + 6)
    assert tight.ids.tolist() == [CLS, 500, 501, SEP, 1000, 1001, *range(1004, 1008), SEP]


def test_a_passage_grows_to_its_better_side_first() -> None:
    bounds, scores = document_of([10, 10, 10, 10, 10]).bounds, np.asarray([0.0, 1.0, 5.0, 2.0, 0.0])
    order = np.argsort(-scores, kind="stable")
    assert grow(bounds, scores, order, 10, 1).tolist() == [[2, 2, 3]], "no room for a neighbour"
    assert grow(bounds, scores, order, 20, 1).tolist() == [[2, 2, 4]]
    assert grow(bounds, scores, order, 30, 1).tolist() == [[2, 1, 4]]
    assert grow(bounds, scores, order, 30, 0).tolist() == [[2, 1, 4], [0, 0, 1], [4, 4, 5]], "what is left starts its own"
    assert grow(bounds, scores, order, 5, 1).tolist() == [[2, 2, 3]], "a block that is too long stays alone"
    silent = np.asarray([0.0, 0.0, 0.0, 3.0, 0.0, 0.0, 0.0])
    order = np.argsort(-silent, kind="stable")
    assert grow(document_of([10] * 7).bounds, silent, order, 50, 1).tolist() == [[3, 1, 6]], "the best stands in the middle"


@given(st.lists(st.integers(1, 40), max_size=25), st.integers(1, 120), st.integers(0, 5), st.randoms(use_true_random=False))
def test_passages_hold_whole_blocks_that_fit_and_none_twice(lengths: list[int], room: int, most: int, random: Random) -> None:
    document, scores = document_of(lengths), np.asarray([random.choice([0.0, 1.0, 2.5]) for _ in lengths])
    order = np.argsort(-scores, kind="stable")
    passages = grow(document.bounds, scores, order, room, most).tolist()
    held = [block for _, first, end in passages for block in range(first, end)]
    assert len(held) == len(set(held))
    assert len(passages) == min(most, len(passages)) if most else sorted(held) == list(range(len(lengths)))
    assert [seed for seed, _, _ in passages[:1]] == order[:1].tolist(), "the best block is always read"
    for number, (seed, first, end) in enumerate(passages):
        tokens = sum(lengths[first:end])
        assert first <= seed < end
        assert tokens <= room or end - first == 1
        taken = {block for _, a, b in passages[:number] for block in range(a, b)}
        for beside in {first - 1, end} & set(range(len(lengths))):
            assert beside in taken or tokens + lengths[beside] > room, "it grew as far as it could"


def test_a_grown_passage_is_packed_as_its_text_stands() -> None:
    document, query = document_of([10, 20, 30, 40], n_title=6), query_of(4)
    title, room = room_beside(query, document, ROBERTA, 64)
    assert (title, room) == (6, 64 - 4 - 4 - 6)
    packed = pack_passage(query, document, (2, 1, 3), ROBERTA, 64)
    text = [*range(900, 906), *range(1010, 1060)]
    assert packed.ids.tolist() == [0, *range(500, 504), 2, 2, *text, 2]
    assert packed.ids[packed.split :].tolist() == [*text, 2]
    assert packed.taken.tolist() == [2]
    cut = pack_passage(query, document, (3, 3, 4), ROBERTA, 30)
    assert cut.ids.tolist() == [0, *range(500, 504), 2, 2, *range(900, 906), *range(1060, 1076), 2]
    with pytest.raises(ValueError, match="a budget of 8 tokens has no room beside 4 query and 4 special tokens"):
        pack_passage(query, document, (2, 1, 3), ROBERTA, 8)


INF = float("inf")


def packed(n_tokens: int, *, cut: bool = False) -> Packed:
    return Packed(np.zeros(n_tokens, np.int32), 1, np.zeros(0, np.intp), cut)


def numbers(*values: float) -> np.ndarray:
    return np.asarray(values, dtype=np.float64)


def test_blocks_that_the_model_did_not_read_have_no_score() -> None:
    shortlist = Shortlist(BlockScores(numbers(3, 2, 1, 0), numbers(3, 2, 1, 0)), np.asarray([1, 3]), [packed(7), packed(9)])
    assert shortlist.n_tokens == 16
    assert shortlist.scored(np.asarray([-0.5, 4.0])).tolist() == [-INF, -0.5, -INF, 4.0]


@pytest.mark.parametrize(
    ("n_blocks", "taken", "cut", "everything"),
    [
        (3, [2, 0, 1], False, True),
        (3, [2, 0, 1], True, False),
        (3, [2, 0], False, False),
        (1, [0], True, True),  # of one block there is no choice
    ],
)
def test_nothing_was_chosen_where_each_block_is_read_in_full(n_blocks: int, taken: list[int], cut: bool, everything: bool) -> None:
    blocks = np.asarray(taken)
    chosen = Chosen([packed(20, cut=cut)], blocks, single_reach(blocks))
    assert chosen.is_all_of(document_of([5] * n_blocks)) == everything


def test_what_the_model_says_of_its_passages_orders_them() -> None:
    """Blocks 5, 1 and 3 by the selector; the passages stand in document order: 1, 3, 5."""
    taken = np.asarray([5, 1, 3])
    selection = Selection([packed(4)] * 3, taken, numbers(0, 7, 0, 6, 0, 9), numbers(0, 0, 0), single_reach(taken))
    decided = selection.decided(np.asarray([0.1, 0.9, 0.5], dtype=np.float32))
    assert decided.taken.tolist() == [3, 5, 1]
    assert decided.reach.tolist() == [[3, 4], [5, 6], [1, 2]]
    assert decided.scores.tolist() == pytest.approx([0, 0.1, 0, 0.9, 0, 0.5])
