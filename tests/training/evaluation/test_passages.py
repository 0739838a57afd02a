"""Questions with the blocks of their document, on the toy."""

from collections.abc import Callable

import numpy as np
import pytest

from keyblock.pipeline import Pipeline
from keyblock.selectors import SELECTORS
from training.data.collection import Collection
from training.data.examples import Preparation
from training.evaluate.selection import Passages, term_overlap


@pytest.fixture
def preparation(toy: Collection, change_pipeline: Callable[..., Pipeline]) -> Preparation:
    return Preparation(toy, change_pipeline(segmenter={"name": "sentences", "block_tokens": 30}))


def test_questions_have_the_blocks_of_their_document(preparation: Preparation) -> None:
    passages = Passages()
    passages.add("one", preparation, ["river?", "river!", "stone?"])
    passages.add("two", preparation, ["garden?", "river?"])
    assert passages.shares == {"one": 2, "two": 2}, "river! has no gold passage"
    river, stone = passages.named()["one"]
    assert passages.texts[river.query] == "news of the river"
    document = preparation.document("river-3")
    text = preparation.collection.document("river-3").text
    assert [passages.texts[i] for i in river.blocks] == [
        text[start:end] for start, end in zip(document.starts, document.ends, strict=True)
    ]
    (gold,) = np.flatnonzero(river.right)
    assert "The answer for the river stands here." in passages.texts[river.first + gold]
    bm25 = SELECTORS.create({"name": "bm25"})
    np.testing.assert_array_equal(
        river.lexical, bm25.scores(preparation.query("river?"), document, preparation.pipeline.frequencies)
    )
    assert stone.first > river.first
    np.testing.assert_array_equal(passages.tokens[stone.query], preparation.query("stone?").token_ids)


def test_a_document_of_two_questions_stands_there_once(preparation: Preparation) -> None:
    passages = Passages()
    passages.add("one", preparation, ["river?", "stone?", "river?"])
    first, _, again = passages.questions
    assert first.first == again.first
    assert len(passages.texts) == 3 + preparation.document("river-3").n_blocks + preparation.document("stone-3").n_blocks


def test_overlap_is_the_share_of_terms_in_right_blocks(preparation: Preparation) -> None:
    """Of "news of the river" the terms are news and river; the gold block has one."""
    document, query = preparation.document("river-3"), preparation.query("river?")
    right = preparation.pipeline.selector.scores(query, document, preparation.pipeline.frequencies) > 0
    assert len(query.terms) == 2
    assert term_overlap(query, document, right) == 0.5
    assert term_overlap(query, document, ~right) == 0
    assert term_overlap(preparation.pipeline.prepare_query("of the"), document, right) == 0
