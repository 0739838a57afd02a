"""Segment P@1 on documents whose blocks are known, against slow versions."""

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from training.data.collection import Collection
from training.data.examples import Preparation
from training.data.types import Document, Span
from training.evaluate.selection import Segmented, holds, random_precision, segment_precision, segmented

TEXT = "The old river. A new bridge is here. One stone. Nothing else stands in the city."
SENTENCES = [(0, 14), (15, 36), (37, 47), (48, 80)]


class Counts:
    """A model that counts a word."""

    def __init__(self, pipeline: Pipeline, word: str) -> None:
        (self.token,) = pipeline.tokenizer.ids(word)

    def choose(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        return np.asarray([(packed.ids == self.token).sum() for packed in sequences], dtype=np.float32)

    outputs = choose

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        raise AssertionError("no document is scored")


@pytest.fixture
def preparation(toy_copy: Path, change_pipeline: Callable[..., Pipeline]) -> Preparation:
    """The toy with a document of four sentences, each a block."""
    collection = Collection(toy_copy)
    collection.documents["four"] = Document("four", "", TEXT)  # type: ignore[index]
    preparation = Preparation(collection, change_pipeline(segmenter={"name": "sentences", "block_tokens": 8}))
    document = preparation.document("four")
    assert list(zip(document.starts.tolist(), document.ends.tolist(), strict=True)) == SENTENCES
    return preparation


@pytest.mark.parametrize(
    ("spans", "right"),
    [
        ([(15, 36)], [1]),  # a whole block
        ([(20, 30)], [1]),  # inside one
        ([(0, 40)], [0, 1]),  # over two, and 3 of the ten characters of a third
        ([(0, 42)], [0, 1, 2]),  # half of the third
        ([(30, 42)], [1, 2]),  # 6 of its 12 here, and there 5, which are half of that block
        ([(33, 60)], [2]),  # 3 of 21, all of ten, 12 of 32 that could be 27: only the middle one
        ([(14, 15)], []),  # white space
        ([(46, 49)], []),  # a character of each, of three
        ([(46, 49), (35, 38)], []),  # two of the third block's, but one of each passage
        ([(46, 49), (20, 30)], [1]),  # one passage of two is enough
    ],
)
def test_which_blocks_hold_a_passage_by_hand(preparation: Preparation, spans: list[tuple[int, int]], right: list[int]) -> None:
    gold = [Span("four", *span) for span in spans]
    assert np.flatnonzero(holds(preparation, "four", gold)).tolist() == right


@given(st.lists(st.tuples(st.integers(0, 79), st.integers(0, 60)), max_size=3))
def test_holding_equals_a_slow_count(
    toy: Collection, change_pipeline: Callable[..., Pipeline], passages: list[tuple[int, int]]
) -> None:
    preparation = Preparation(toy, change_pipeline(segmenter={"name": "sentences", "block_tokens": 20}))
    text = toy.document("river-3").text
    spans = [Span("river-3", start, min(start + length, len(text))) for start, length in passages]
    document = preparation.document("river-3")
    slow = []
    for start, end in zip(document.starts.tolist(), document.ends.tolist(), strict=True):
        shared = [len({*range(start, end)} & {*range(span.start, span.end)}) for span in spans]
        slow.append(any(n >= 1 and 2 * n >= min(end - start, s.end - s.start) for n, s in zip(shared, spans, strict=True)))
    assert holds(preparation, "river-3", spans).tolist() == slow


def test_precision_by_hand(preparation: Preparation) -> None:
    """Of three pairs the bridge is in the right block, the river in a wrong one, and the city in the right one: 2/3.

    A random order has (1 + 2 + 1) of four blocks right: 1/3.
    """
    pairs = [
        Segmented("river?", "four", np.asarray([False, True, False, False])),
        Segmented("river?", "four", np.asarray([True, True, False, False])),
        Segmented("stone!", "four", np.asarray([False, False, True, False])),
    ]
    pipeline = preparation.pipeline
    assert segment_precision(preparation, Counts(pipeline, "bridge"), pairs) == pytest.approx(2 / 3)
    assert segment_precision(preparation, Counts(pipeline, "old"), pairs) == pytest.approx(1 / 3)
    assert segment_precision(preparation, Counts(pipeline, "zebra"), pairs) == pytest.approx(1 / 3), "ties: the first block"
    assert random_precision(pairs) == pytest.approx(1 / 3)


def test_passages_that_no_block_holds_are_not_judged(preparation: Preparation) -> None:
    spans = preparation.collection.spans
    spans["city?"] = [Span("four", 14, 15)]  # type: ignore[index]
    spans["town?"] = [Span("four", 0, 14), Span("river-3", 0, 400), Span("four", 37, 47)]  # type: ignore[index]
    assert segmented(preparation, ["city?", "nobody?"]) == []
    one, other = segmented(preparation, ["town?"])
    assert (one.document, one.right.tolist()) == ("four", [True, False, True, False])
    assert (other.document, bool(other.right[0])) == ("river-3", True)
