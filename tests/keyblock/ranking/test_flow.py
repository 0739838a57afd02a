"""The ranking flow by itself: its steps, many flows together beside each alone, and what it says of lost time.

That Ranker answers as the service does is in tests/service/test_kinds.py.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from keyblock.description import PipelineConfig
from keyblock.fusion import SecondLook
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.ranking.answer import Answered, Scores, finished
from keyblock.ranking.flow import Answer, Choose, Fetch, Flow, Pack, Prepare, Read, Score, Step, ranking
from keyblock.ranking.pruning import never
from keyblock.ranking.request import AnswerOptions, RankRequest, Texts
from keyblock.ranking.warnings import Missing
from keyblock.scoring import drive, drive_all
from keyblock.text.analyzer import DocumentFrequencies
from keyblock.text.tokenizer import Tokenizer

LOOK = SecondLook(documents=2, blocks=3)
TEXTS = ["The river flooded the city. " * 12, "A bridge of stone.", "", "The year was dry. " * 40, "River, bridge, river, flood."]


class Model:
    """A logit is the share of even token ids: it depends on the sequence alone, as a real model's does up to arithmetic."""

    def outputs(self, sequences: Sequence[Packed]) -> NDArray[np.float32]:
        return np.asarray([np.mean(np.asarray(one.ids) % 2 == 0) for one in sequences], np.float32)

    choose = outputs

    def combine(self, states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        raise AssertionError("no aggregator of these has states")


@pytest.fixture(scope="module", params=[{}, {"aggregator": {"name": "max"}}, {"second_look": LOOK}], ids=["joint", "max", "look"])
def ranked(request: pytest.FixtureRequest, tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> Pipeline:
    return Pipeline(PipelineConfig(**request.param), tokenizer, frequencies)


def flow(pipeline: Pipeline, query: str, texts: Sequence[str], **asked: Any) -> Flow[Answered]:
    return ranking(RankRequest(query, Texts(texts), **asked), pipeline)


@given(
    lists=st.lists(st.tuples(st.sampled_from(["river", "stone bridge"]), st.lists(st.sampled_from(TEXTS), max_size=4)), max_size=4)
)
def test_together_or_each_by_itself_is_the_same(ranked: Pipeline, lists: list[tuple[str, list[str]]]) -> None:
    asked, model = AnswerOptions(spans=True, threshold=0.0, top_n=3), Model()
    documents = [ranked.prepare_documents(texts) for _, texts in lists]
    flows = [flow(ranked, *one, asked=asked) for one in lists]
    together = drive_all(flows, documents, ranked.aggregator, model)
    assert len(together) == len(lists)
    for one, given_list, prepared in zip(together, lists, documents, strict=True):
        alone = drive(flow(ranked, *given_list, asked=asked), prepared, ranked.aggregator, model)
        assert one.ranking.order == alone.ranking.order
        assert one.ranking.scores.tolist() == alone.ranking.scores.tolist()
        assert (one.ranking.blocks, one.spans) == (alone.ranking.blocks, alone.spans)


def test_a_learned_selector_is_asked_before_the_scores(tokenizer: Tokenizer, frequencies: DocumentFrequencies) -> None:
    learned = Pipeline(PipelineConfig(selector={"name": "learned", "keep": 2}), tokenizer, frequencies)
    kinds: list[type[Step]] = []

    def noted(steps: Flow[Answered]) -> Flow[Answered]:
        outcome: Any = None
        while True:
            try:
                step = steps.send(outcome)
            except StopIteration as ended:
                return ended.value  # type: ignore[no-any-return]
            kinds.append(type(step))
            outcome = yield step

    documents = learned.prepare_documents(TEXTS)
    answered = drive(noted(flow(learned, "river", TEXTS)), documents, learned.aggregator, Model())
    assert kinds == [Prepare, Read, Choose, Pack, Score, Answer]
    (together,) = drive_all([flow(learned, "river", TEXTS)], [documents], learned.aggregator, Model())
    assert answered.ranking.order == together.ranking.order


def test_what_is_late_is_told_and_ranked_behind(ranked: Pipeline) -> None:
    steps = flow(ranked, "river flood", TEXTS)
    prepare = next(steps)
    assert isinstance(prepare, Prepare)
    read = steps.send(prepare.do())
    assert isinstance(read, Read)
    candidates = read.choose(ranked.prepare_documents(TEXTS))
    score = steps.send([None, *candidates[1:]])
    assert isinstance(score, Score)
    assert not score.candidates[0].read
    assert sorted(score.order()) == list(range(len(TEXTS)))
    logits = np.full(len(TEXTS), -np.inf, np.float32)
    logits[1] = 2.0  # the only one that is scored in time
    n_sequences = sum(len(one.sequences) for one in score.candidates)
    last = steps.send(Scores(logits, np.full(n_sequences, -np.inf, np.float32)))
    assert isinstance(last, Answer)
    answered = finished(last.steps(never))
    assert answered.ranking.order[0] == 1
    assert answered.ranking.degraded
    assert set(answered.losses) >= {"order"}
    assert "1 of 5 documents were not read" in answered.losses["order"]


def test_what_the_store_lacks_is_named(ranked: Pipeline) -> None:
    steps = ranking(RankRequest("river", Texts(["", TEXTS[0]], {0: "nowhere"})), ranked)
    assert next(steps) == Fetch()
    assert isinstance(steps.send(Missing(unknown={0})), Prepare)
    with pytest.raises(ValueError, match="need a store"):
        drive(ranking(RankRequest("river", Texts([""], {0: "x"})), ranked), [], ranked.aggregator, Model())
