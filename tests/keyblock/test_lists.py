"""Many lists together, beside each by itself; that Ranker answers as the service does is in tests/service/test_kinds.py."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from keyblock.answering import AnswerOptions
from keyblock.description import PipelineConfig
from keyblock.lists import CandidateList, meet, rank_lists, without_surrogates
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.text.frequencies import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer

TEXTS = ["The river flooded the city. " * 12, "A bridge of stone.", "", "The year was dry. " * 40, "River, bridge, river, flood."]


class Model:
    """A logit is the share of even token ids: it depends on the sequence alone, as a real model's does up to arithmetic."""

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        return np.asarray([np.mean(np.asarray(one.ids) % 2 == 0) for one in sequences], np.float32)

    choose = outputs

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        raise AssertionError("no aggregator of these has states")


@pytest.fixture(scope="module", params=["joint", "max"])
def ranked(request: pytest.FixtureRequest, tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Pipeline:
    return Pipeline(PipelineConfig(aggregator={"name": request.param}), tokenizer, frequencies)


def listed(pipeline: Pipeline, query: str, texts: Sequence[str]) -> CandidateList:
    prepared = pipeline.prepare_query(query)
    return CandidateList(prepared, meet(pipeline, Model(), prepared, pipeline.prepare_documents(texts)), texts)


@given(
    lists=st.lists(st.tuples(st.sampled_from(["river", "stone bridge"]), st.lists(st.sampled_from(TEXTS), max_size=4)), max_size=4)
)
def test_together_or_each_by_itself_is_the_same(ranked: Pipeline, lists: list[tuple[str, list[str]]]) -> None:
    asked, budget = AnswerOptions(spans=True, threshold=0.0, top_n=3), ranked.config.packing.budget
    met = [listed(ranked, *one) for one in lists]
    together = list(rank_lists(ranked, Model(), met, asked, budget))
    alone = [answer for one in met for answer in rank_lists(ranked, Model(), [one], asked, budget)]
    assert len(together) == len(lists)
    for one, other in zip(together, alone, strict=True):
        assert one.ranking.order == other.ranking.order
        assert one.ranking.scores.tolist() == other.ranking.scores.tolist()
        assert (one.ranking.blocks, one.spans) == (other.ranking.blocks, other.spans)


def test_a_lone_surrogate_is_a_character_that_nobody_knows() -> None:
    assert without_surrogates("a\ud800b\U0001f600") == "a\ufffdb\U0001f600"
