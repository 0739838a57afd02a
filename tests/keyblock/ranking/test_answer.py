"""Answers: thresholds, spans, contexts, and results that differ."""

from typing import Any

import numpy as np
import pytest

from keyblock.description import PipelineConfig
from keyblock.fusion import NOT_SENT, Activation, FirstStage
from keyblock.pipeline import Pipeline
from keyblock.ranking.answer import Outcome, Scores, answered, finished
from keyblock.ranking.diversity import by_marginal_relevance
from keyblock.ranking.order import UNREAD, Candidate, candidate, rank
from keyblock.ranking.pruning import Late, never
from keyblock.ranking.request import AnswerOptions
from keyblock.ranking.warnings import Missing

TEXTS = ["The mill stood by the river.", "Nobody spoke of the river.", "Cats sleep all day."]


@pytest.fixture
def candidates(pipeline: Pipeline) -> list[Candidate]:
    query = pipeline.prepare_query("river")
    prepared = [pipeline.prepare_document(text) for text in [*TEXTS, ""]]
    return [*(candidate(document, pipeline.select(query, document, 96)) for document in prepared), UNREAD]


def complete(pipeline: Pipeline, candidates: list[Candidate], logits: list[float], late: Late = never, **asked: Any) -> Any:
    outcome = Outcome(pipeline.prepare_query("river"), candidates, Scores(np.asarray(logits, np.float32)), 96)
    ranking = rank(candidates, outcome.scores.logits, pipeline.config.fusion, 96)
    return finished(answered(pipeline, outcome, [*TEXTS, "", ""], ranking, AnswerOptions(**asked), late))


NOT = float("-inf")


@pytest.mark.parametrize(
    ("asked", "order", "left_out"),
    [
        ({}, [0, 1, 2, 3, 4], None),
        ({"min_score": 0.5}, [0, 2, 4], 2),
        ({"min_score": 0.1}, [0, 1, 2, 4], 1),
        ({"min_score": 0.5, "top_n": 2}, [0, 2], 2),  # what is below the score takes no place among the results
        ({"top_n": 2}, [0, 1], None),
        ({"min_score": "auto", "top_n": 2}, [0, 1], None),
    ],
)
def test_the_models_results_are_judged_and_those_that_it_has_not_scored_stay_unless_they_are_empty(
    pipeline: Pipeline, candidates: list[Candidate], asked: dict[str, Any], order: list[int], left_out: int | None
) -> None:
    """By hand: the sigmoid of 2 is .88, that of -2 is .12; document 2 was not scored in time, 3 is empty, 4 was not read."""
    found = complete(pipeline, candidates, [2, -2, NOT, NOT, NOT], **asked)
    assert (found.ranking.order, found.refused and found.refused.left_out) == (order, left_out)
    if left_out == 2:
        assert found.refused == (0.5, 2, pytest.approx(0.119, abs=1e-3)), "the empty one has no score"


def test_what_cannot_be_done_gets_a_warning(pipeline: Pipeline, candidates: list[Candidate]) -> None:
    logits = [2, -2, -3, NOT, NOT]
    (warning,) = complete(pipeline, candidates, logits, tokens=5).warnings
    assert warning.startswith("max_context_tokens: ")
    assert complete(pipeline, candidates, logits, tokens=5, prune=True).warnings == []
    diverse = complete(pipeline, candidates, logits, diversity=0.5)
    assert diverse.warnings == ["diversity: left out, since this model's bundle has no vectors of blocks to compare"]
    assert diverse.ranking.order == complete(pipeline, candidates, logits).ranking.order


def test_a_document_that_the_store_could_not_give_stays_and_one_that_it_does_not_have_is_left_out(
    pipeline: Pipeline, candidates: list[Candidate]
) -> None:
    outcome = Outcome(
        pipeline.prepare_query("river"), [candidates[3]] * 2, Scores(np.full(2, NOT, np.float32)), 96, Missing([0], [1])
    )
    ranking = rank(outcome.candidates, outcome.scores.logits, pipeline.config.fusion, 96)
    found = finished(answered(pipeline, outcome, ["", ""], ranking, AnswerOptions(min_score=0.5)))
    assert (found.ranking.order, found.refused) == ([1], (0.5, 1, None))


def test_a_bundles_own_threshold(pipeline: Pipeline, candidates: list[Candidate]) -> None:
    config = pipeline.config.model_copy(update={"min_score": 0.5})
    recommending = Pipeline(config, pipeline.tokenizer, pipeline.frequencies)
    assert complete(recommending, candidates, [2, -2, -3, NOT, NOT], min_score="auto").ranking.order == [0, 4]
    found = complete(pipeline, candidates, [2, -2, -3, NOT, NOT], min_score="auto")
    assert (found.refused, len(found.ranking.order)) == (None, 5)
    assert "recommends no threshold" in found.warnings[0]


def test_scores_that_are_logits_are_judged_by_their_probability(pipeline: Pipeline, candidates: list[Candidate]) -> None:
    config = pipeline.config.model_copy(update={"activation": Activation(name="identity", scale=2.0)})
    logits = Pipeline(config, pipeline.tokenizer, pipeline.frequencies)
    assert complete(logits, candidates, [1, -1, -1, NOT, NOT], min_score=0.85).ranking.order == [0, 4]  # sigmoid(2) is .88


def test_spans_and_contexts_are_of_the_results_alone(pipeline: Pipeline, candidates: list[Candidate]) -> None:
    found = complete(pipeline, candidates, [2, -2, -3, NOT, NOT], min_score=0.5, spans=True, prune=True)
    assert {number: [TEXTS[number][s.start : s.end] for s in of] for number, of in found.spans.items() if of} == {0: [TEXTS[0]]}
    assert {number: context.text for number, context in found.contexts.items()} == {0: TEXTS[0]}
    assert found.saved.tokens == found.saved.tokens_of_documents == len(pipeline.tokenizer.ids(TEXTS[0]))


def test_how_many_results_a_call_is_about() -> None:
    """Ten where it does not say; all where the model has something to say of each, or the first stage may lift any."""
    config, fused = PipelineConfig(), FirstStage.read([3, 2, 1], "mapfuse", 3)
    assert AnswerOptions().results(NOT_SENT, config) == 10
    assert AnswerOptions(top_n=3).results(NOT_SENT, config) == 3
    assert AnswerOptions(top_n=3).results(FirstStage.read([3, 2, 1], None, 3), config) == 3
    for asked in ({"min_score": 0.5}, {"min_score": "auto"}, {"spans": True}, {"prune": True}):
        judged = AnswerOptions(**asked)  # type: ignore[arg-type]
        assert judged.results(NOT_SENT, config) is None
        assert judged._replace(top_n=3).results(NOT_SENT, config) == 3
    assert AnswerOptions(top_n=3).results(fused, config) is None


def test_a_document_that_the_model_has_skipped_takes_no_place_of_a_bound(pipeline: Pipeline, candidates: list[Candidate]) -> None:
    """It promises less than document 1, which the model has judged and which is below the bound; so is none without text."""
    candidates[2] = candidates[2]._replace(sequences=[], skipped=True)
    found = complete(pipeline, candidates[:4], [2, -2, NOT, NOT], min_score=0.5, top_n=3, spans=True)
    assert (found.ranking.order, found.refused.left_out, found.ranking.skipped) == ([0], 2, 1)
    none = complete(pipeline, candidates[:3], [2, -2, NOT], min_score=0.0, top_n=2)
    assert (none.ranking.order, none.refused) == ([0, 1], (0.0, 0, None)), "whatever the model says reaches 0"
    assert complete(pipeline, candidates[:4], [2, -2, NOT, NOT], top_n=3).ranking.order == [0, 1, 2]


@pytest.mark.parametrize("in_time", range(12))
def test_once_it_is_late_the_best_results_have_spans_and_the_others_are_counted(
    pipeline: Pipeline, candidates: list[Candidate], in_time: int
) -> None:
    """Time is up at each step in turn; what is answered is what an answer without a deadline has."""
    looks, asked = iter([False] * in_time), {"spans": True, "prune": True, "threshold": 0.0}
    found = complete(pipeline, candidates[:3], [2, -2, 1], lambda: next(looks, True), **asked)
    whole = complete(pipeline, candidates[:3], [2, -2, 1], **asked)
    assert whole.unread == 0
    assert list(found.spans.items()) == list(whole.spans.items())[: in_time if in_time < 3 else None]
    assert found.contexts.items() <= whole.contexts.items()
    assert found.unread == 3 - len(found.contexts)
    assert found.ranking.order == whole.ranking.order


EAST, NORTH, NORTH_EAST, NOTHING = (127, 0), (0, 127), (90, 90), (0, 0)


def order(relevance: list[float], *vectors: tuple[int, int], diversity: float) -> list[int]:
    return finished(by_marginal_relevance(np.asarray(relevance), np.asarray(vectors, np.int8), diversity))


def test_likeness_is_that_to_the_most_alike_of_those_before() -> None:
    """By hand, at .5: 0 is first; then its copy 1 has .5 - .5, and 2 has .375. Of the four, 1 has .45 - .5 * .707, and 2 has .4."""
    assert order([0.4, 0.4, 0.3], EAST, EAST, NORTH, diversity=0.5) == [0, 2, 1]
    assert order([1.0, 0.9, 0.8, 0.7], EAST, NORTH_EAST, NORTH, EAST, diversity=0.5) == [0, 2, 1, 3]


@pytest.mark.parametrize("diversity", [0.0, 0.3, 1.0])
def test_the_best_is_first_and_equals_keep_their_order(diversity: float) -> None:
    assert order([0.2, 0.2, 0.2], EAST, EAST, EAST, diversity=diversity) == [0, 1, 2]
    assert order([0.2, 0.1], NOTHING, NOTHING, diversity=diversity) == [0, 1]
    assert order([0.0, 0.0], EAST, NORTH, diversity=diversity) == [0, 1]


def test_once_it_is_late_what_is_chosen_is_first() -> None:
    looks = iter([False])
    vectors = np.asarray([EAST, EAST, NORTH, NORTH], np.int8)
    assert finished(by_marginal_relevance(np.asarray([0.4, 0.4, 0.3, 0.2]), vectors, 0.5, lambda: next(looks, True))) == [0, 2]


def test_it_is_late_only_for_results_that_are_wanted(pipeline: Pipeline, candidates: list[Candidate]) -> None:
    known = [one._replace(vectors=np.ones((len(one.blocks), 2), np.int8)) for one in candidates[:3]]
    asked = [complete(pipeline, known, [2, -2, 1], lambda: True, diversity=0.5, top_n=top_n).warnings for top_n in (1, 2)]
    assert asked == [[], ["diversity: time was up after 1 of 2 results; the others are ordered by their scores"]]
