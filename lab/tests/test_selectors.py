"""Random blocks; FIRST, TERMF and FIRST+TERMF against the paper's words, and where the answer stands in the last sentence."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.description import PipelineConfig
from keyblock.pipeline import Pipeline
from keyblock.selectors import SELECTORS, SelectedBy, rank_blocks
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer
from tests.keyblock.test_selectors import BLOCKS, QUERY, document_of, query_of

STORY = (
    "The town of Linden stands on a river. It has a market and two schools. The trains stop there twice a day. In spring the "
    "streets are full of visitors. The bridge was built by Ada Moss, whose other bridges have fallen. Nobody knows why."
)
ANSWER = "The bridge was built by Ada Moss, whose other bridges have fallen."


def slow_first_termf(query: list[str], blocks: list[list[str]], first: int) -> list[int]:
    """The first blocks, then the best of the others, one after the other."""
    chosen = list(range(min(first, len(blocks))))
    while len(chosen) < len(blocks):
        left = [number for number in range(len(blocks)) if number not in chosen]
        chosen.append(max(left, key=lambda number: (sum(blocks[number].count(term) for term in query), -number)))
    return chosen


@given(BLOCKS, QUERY)
def test_termf_equals_a_slow_count(frequencies: DocumentFrequencies, blocks: list[list[str]], query: list[str]) -> None:
    scores = SELECTORS.create("termf").scores(query_of(*query), document_of(blocks), frequencies)
    assert scores.tolist() == [sum(block.count(term) for term in query) for block in blocks]


@given(BLOCKS, QUERY, st.integers(1, 12))
def test_first_termf_takes_the_first_then_the_best_others(
    frequencies: DocumentFrequencies, blocks: list[list[str]], query: list[str], first: int
) -> None:
    selector = SELECTORS.create({"name": "first_termf", "first": first})
    order = rank_blocks(selector.scores(query_of(*query), document_of(blocks), frequencies))
    assert order.tolist() == slow_first_termf(query, blocks, first)


def test_by_hand(frequencies: DocumentFrequencies) -> None:
    """Blocks hold 0, 2, 1, 3 and 1 of the query's terms: a term that comes twice counts twice, and 1 = 1 stays in order."""
    query = query_of("river", "flood")
    document = document_of([["citi"], ["river", "river"], ["flood"], ["river", "flood", "river"], ["river", "stone"]])
    assert SELECTORS.create("termf").scores(query, document, frequencies).tolist() == [0, 2, 1, 3, 1]
    ranked = {
        name: rank_blocks(SELECTORS.create(name).scores(query, document, frequencies)).tolist() for name in ("termf", "first_termf")
    }
    assert ranked == {"termf": [3, 1, 2, 4, 0], "first_termf": [0, 1, 2, 3, 4]}
    pair = SELECTORS.create({"name": "first_termf", "first": 1})
    assert rank_blocks(pair.scores(query, document, frequencies)).tolist() == [0, 3, 1, 2, 4]


@pytest.mark.parametrize(
    ("selector", "passages", "finds", "by"),
    [
        ({"name": "first"}, 2, False, SelectedBy.POSITION),
        ({"name": "termf"}, 2, True, SelectedBy.EVIDENCE),
        ({"name": "first_termf", "first": 1}, 2, True, SelectedBy.EVIDENCE),
        ({"name": "first_termf", "first": 2}, 2, False, SelectedBy.EVIDENCE),
    ],
)
def test_the_answer_in_a_late_sentence(
    tokenizer: Tokenizer,
    frequencies: DocumentFrequencies,
    selector: dict[str, object],
    passages: int,
    finds: bool,
    by: SelectedBy,
) -> None:
    """Stop words ("the", "was", "by") find nothing, and "bridge" finds "bridges"."""
    config = PipelineConfig(
        segmenter={"name": "single_sentences"}, selector=selector, aggregator={"name": "max", "passages": passages}
    )
    pipeline = Pipeline(config, tokenizer, frequencies)
    document = pipeline.prepare_document(STORY)
    selection = pipeline.select(pipeline.prepare_query("Who was the bridge built by?"), document)
    read = [STORY[document.starts[block] : document.ends[block]] for block in selection.taken]
    assert len(read) == 2
    assert (ANSWER in read) is finds
    assert selection.by == by


def test_evidence_of_termf_is_termf() -> None:
    assert PipelineConfig(selector={"name": "termf"}).evidence == {"name": "termf"}
    assert PipelineConfig(selector={"name": "first_termf"}).evidence["name"] == "bm25"


def test_random_draws_by_content_and_seed(frequencies: DocumentFrequencies) -> None:
    document, query = document_of([["river"]] * 40), query_of("river", "stone")
    scores = SELECTORS.create("random").scores(query, document, frequencies)
    again = SELECTORS.create("random").scores(query, document_of([["river"]] * 40), frequencies)
    np.testing.assert_array_equal(scores, again)
    other_query = SELECTORS.create("random").scores(query_of("river"), document, frequencies)
    other_seed = SELECTORS.create({"name": "random", "seed": 1}).scores(query, document, frequencies)
    assert len({tuple(rank_blocks(s).tolist()) for s in (scores, other_query, other_seed)}) == 3
    assert sorted(rank_blocks(scores).tolist()) == list(range(40))
