"""What is learned beside the fusion: prior scores, which sentence answers, the second look, fusion with the first stage."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from keyblock.fusion import FIRST_STAGE_FUSIONS, Fusion, Linear, MapFuse, ReciprocalRank, SecondLook, sigmoid
from keyblock.pipeline import Pipeline
from keyblock.pre_ranking import PreRanking, Prior
from keyblock.ranking.spans import Sentence
from training.data.collection import Collection
from training.data.examples import Preparation
from training.data.types import Span
from training.evaluate.calibration.first_stage import LEARNERS, HeldOut, fuse_runs, learn
from training.evaluate.calibration.fit import calibration_gap
from training.evaluate.calibration.prior import FEWEST, Request, fit_prior, fusion_prior, missed, read_requests
from training.evaluate.calibration.second_look import LookedScores, fit_second_look, with_look
from training.evaluate.calibration.spans import ReadDocument, answers, fit_spans, span_probabilities


def requests(count: int, candidates: int = 30, seed: int = 0) -> list[Request]:
    """The relevant one of each is nearer than most, and its words are as everybody's; the last feature says nothing."""
    rng, found = np.random.default_rng(seed), []
    for _ in range(count):
        features = rng.normal(size=(candidates, 5))
        features[:, 4] = 3.0
        relevant = np.arange(candidates) == rng.integers(candidates)
        features[relevant, 3] += 2.0
        found.append(Request(features, relevant))
    return found


def test_the_feature_that_tells_is_weighed_and_the_others_are_not() -> None:
    learned = fit_prior([requests(200), requests(100, 40, seed=1)], bar=5)
    assert learned.similarity > 1.0
    assert np.abs([learned.best_block, learned.top_blocks, learned.coverage]).max() < 0.3 * learned.similarity
    assert abs(learned.rare_here) < 1e-9, "a feature that never differs teaches nothing"
    pre_ranking = PreRanking(share=0.2, per_result=1, least=1)
    unseen = requests(200, seed=2)
    assert missed(unseen, [learned], pre_ranking) < 0.5 * missed(unseen, [Prior(best_block=1.0)], pre_ranking)


def test_padding_changes_no_weight() -> None:
    """A longer request that teaches nothing, since all of it is relevant, stands beside the others."""
    plain = requests(40)
    none = Request(np.zeros((90, 5)), np.ones(90, np.bool_))
    assert fit_prior([[*plain, none]], bar=5) == fit_prior([plain], bar=5)


def test_too_little_to_learn_from() -> None:
    with pytest.raises(ValueError, match=rf"prior: {FEWEST - 1} queries have a relevant document and more than 5 others"):
        fit_prior([requests(FEWEST - 1)], bar=5)
    with pytest.raises(ValueError, match="prior: 0 queries"):
        fit_prior([requests(40, 6)], bar=5)


def test_what_is_missed_by_hand() -> None:
    """Of twenty documents the best ten are read. Relevant are the best one, the tenth and the last two: half are missed."""
    features = np.zeros((20, 5))
    features[:, 0] = np.arange(20, 0, -1)
    relevant = np.isin(np.arange(20), [0, 9, 18, 19])
    half = PreRanking(share=0.5, per_result=1, least=1)
    assert missed([Request(features, relevant)], [Prior(best_block=1.0)], half) == 0.5
    assert missed([Request(features[:10], relevant[:10])], [Prior(best_block=1.0)], half) == 0.0, "ten results are asked for"
    both = [Prior(best_block=1.0), Prior(best_block=-1.0)]
    assert missed([Request(features, relevant)], both, half) == 0.0, "what is last by one is first by the other"
    assert missed([], [Prior()], half) == 0.0


def test_the_fusion_s_prior_is_its_own() -> None:
    """Less the weights below 0, which say nothing without the logit."""
    fusion, evidence = (
        Fusion(logit=2.0, best_block=0.5, coverage=-4.0, similarity=3.0, mass=9.0),
        np.asarray([[2.0, 1, 1, 0.5, 7], [1, 0, 0, 1, 7]]),
    )
    features = np.column_stack([evidence[:, :4], [8.0, 9.0]])
    assert fusion_prior(fusion).of(features).tolist() == fusion.prior(evidence).tolist() == [2.5, 3.5]
    assert fusion_prior(Fusion()).of(features).tolist() == Fusion().prior(evidence).tolist() == [2.0, 1.0], "the best block"


def test_requests_of_a_collection(toy: Collection, toy_pipeline: Pipeline) -> None:
    """Each has the first candidates, in their order, and says which are relevant."""
    query = next(q for q in toy.split("dev") if any(g > 0 for g in toy.qrels.get(q, {}).values()))
    (relevant,) = list(toy.qrels[query])[:1]
    others = [name for name in toy.documents if name not in toy.qrels[query]][:2]
    run = {query: dict.fromkeys([others[0], relevant, *others[1:]], 1.0)}
    (request,) = read_requests(Preparation(toy, toy_pipeline), run)
    assert request.relevant.tolist() == [False, True, False]
    assert request.features.shape == (3, 5)
    assert request.features[1, 0] == request.features[:, 0].max() > 0
    assert read_requests(Preparation(toy, toy_pipeline), {query: {}}) == []


RNG = np.random.default_rng(0)


def test_a_sentence_answers_where_more_than_half_of_it_is_gold() -> None:
    gold = [Span("d", 10, 20)]
    assert answers(Sentence(10, 20, 0.0, 3), gold)
    assert answers(Sentence(5, 16, 0.0, 3), gold)
    assert not answers(Sentence(0, 15, 0.0, 3), gold)
    assert not answers(Sentence(20, 30, 0.0, 3), gold)
    assert not answers(Sentence(10, 20, 0.0, 3), [])


def document(n: int = 40) -> ReadDocument:
    """Its sentences answer as often as a known rule says."""
    logit = RNG.normal()
    marks = RNG.normal(size=n)
    true = RNG.random(n) < sigmoid(-1.0 + 2.0 * marks + 0.5 * logit)
    found = [Sentence(10 * i, 10 * i + 10, float(mark), 5) for i, mark in enumerate(marks)]
    gold = [Span("d", 10 * i, 10 * i + 10) for i in np.flatnonzero(true).tolist()]
    return ReadDocument("q", "d", logit, found, gold, 400)


def test_the_rule_that_the_labels_were_drawn_by_is_found_again() -> None:
    collections = [[document() for _ in range(100)], [document() for _ in range(60)]]
    found = fit_spans(collections)
    assert (found.bias, found.mark, found.document) == pytest.approx((-1.0, 2.0, 0.5), abs=0.2)
    larger = fit_spans([collections[0], 3 * collections[1]])
    assert larger.model_dump() == pytest.approx(found.model_dump(), abs=1e-4), "collections count the same"
    shifted = [[replace(one, logit=900 + 3000 * one.logit) for one in documents] for documents in collections]
    assert fit_spans(shifted).document * 3000 == pytest.approx(found.document, abs=1e-3), "a second look's scale changes nothing"
    assert fit_spans([*collections, [document(0)]]) == found, "a collection without a sentence teaches nothing"
    fresh = [document() for _ in range(100)]
    scores = np.concatenate(span_probabilities(fresh, found))
    assert calibration_gap(scores, np.concatenate([one.labels for one in fresh])) < 0.03


def test_nothing_is_learned_where_nothing_answers() -> None:
    one = document()
    nothing = ReadDocument(one.query, one.document, one.logit, one.sentences, [], one.tokens)
    with pytest.raises(ValueError, match="no sentence that was read lies in a gold passage"):
        fit_spans([[nothing]])


QUERIES, CANDIDATES = 600, 12
ALL = SecondLook(documents=CANDIDATES, blocks=4, margin=1e9, further=0.0)
FIRST = Fusion(logit=1.0)
"""The first look's fused score is its logit."""


@pytest.fixture
def planted(tmp_path: Path) -> Callable[[float], LookedScores]:
    """Makes dev scores of which one candidate is relevant, drawn in proportion to exp(first + weight * further)."""

    def make(weight: float) -> LookedScores:
        rng = np.random.default_rng(9)
        features, documents, further, lines = {}, {}, {}, []
        for number in range(QUERIES):
            query, names = f"q{number}", [f"d{place}" for place in range(CANDIDATES)]
            logits, after = rng.normal(size=(2, CANDIDATES))
            odds = np.exp(logits + weight * after)
            features[query] = np.column_stack([logits, np.zeros((CANDIDATES, 5))])
            documents[query], further[query] = names, after
            lines.append(f"{query} 0 {names[int(rng.choice(CANDIDATES, p=odds / odds.sum()))]} 1\n")
        (tmp_path / "qrels.tsv").write_text("".join(lines), encoding="utf-8")
        return LookedScores(Collection(tmp_path), features, documents, further, ALL)

    return make


@pytest.mark.parametrize("weight", [0.5, 2.0])
def test_the_planted_weight_is_found(planted: Callable[[float], LookedScores], weight: float) -> None:
    scores = planted(weight)
    look = fit_second_look([scores], FIRST)
    assert look.further / look.first == pytest.approx(weight, rel=0.25)
    (after,) = with_look([scores], look)
    assert after.measure(FIRST)["RR@10"] > scores.measure(FIRST)["RR@10"] + 0.02


def test_a_feature_that_says_nothing_gets_no_weight(planted: Callable[[float], LookedScores]) -> None:
    look = fit_second_look([planted(0.0)], FIRST)
    assert abs(look.further) < 0.15 * look.first


def test_a_feature_that_misleads_gets_none_either(planted: Callable[[float], LookedScores]) -> None:
    """A block that the model likes is never a reason against its document."""
    assert fit_second_look([planted(-2.0)], FIRST).further == 0


@pytest.mark.parametrize(
    ("look", "said"),
    [
        ({"margin": 0.0, "documents": 1}, "no relevant document is among those that it reads"),
        ({}, "the relevant documents are the lower ones of those that it reads"),
    ],
)
def test_a_look_that_cannot_be_learned(planted: Callable[[float], LookedScores], look: dict[str, float], said: str) -> None:
    """Relevant documents have the lowest logit of all."""
    scores = planted(0.0)
    for query, rows in scores.features.items():
        rows[:, 0] = -5.0 * scores.labels(query) + 0.1 * rows[:, 0]
    with pytest.raises(ValueError, match=f"second look: {said}"):
        fit_second_look(with_look([scores], ALL.model_copy(update=look)), FIRST)


def test_a_few_queries_in_which_all_is_right_make_no_certainty(planted: Callable[[float], LookedScores]) -> None:
    """Of ten queries the relevant document has by far the best logit: an eleventh may be another matter."""
    scores = planted(0.0)
    scores.features = dict(list(scores.features.items())[:10])
    for query, rows in scores.features.items():
        rows[:, 0] = 4.0 * scores.labels(query) - 2.0
    look = fit_second_look([scores], FIRST)
    assert look.first * 4.0 < 12.0


def test_scores_after_the_look_are_probabilities(planted: Callable[[float], LookedScores]) -> None:
    scores = planted(1.0)
    (after,) = with_look([scores], fit_second_look([scores], FIRST))
    probabilities = np.concatenate([1 / (1 + np.exp(-after.fused(query, FIRST))) for query in after.features])
    assert probabilities.mean() == pytest.approx(1 / CANDIDATES, abs=0.005)


NONE = float("-inf")
RANKED_FIRST = {"q": {"a": 9.0, "b": 8.0, "c": 7.0}}
MODEL = {"q": {"b": 3.0, "c": 2.0, "a": 1.0}}


def held_out(relevant: str) -> HeldOut:
    return HeldOut({"q": {relevant: 1}}, RANKED_FIRST, MODEL)


def test_worked_example() -> None:
    """.3 / 2 + .6 / 1 for b, .3 / 1 + .6 / 3 for a, .3 / 3 + .6 / 2 for c."""
    fused = fuse_runs(MapFuse(first_stage_map=0.3, model_map=0.6), RANKED_FIRST, MODEL)["q"]
    assert list(fused) == ["b", "a", "c"]
    assert list(fused.values()) == pytest.approx([0.75, 0.5, 0.4])


def test_documents_without_text_stay_last_and_equals_in_the_models_order() -> None:
    """Of a and b each is first for one system and second for the other: of those that the model has scored."""
    model = {"q": {"b": 3.0, "a": 1.0, "c": NONE}}
    assert list(fuse_runs(ReciprocalRank(), {"q": {"c": 9.5, **RANKED_FIRST["q"]}}, model)["q"].items())[2] == ("c", NONE)
    assert list(fuse_runs(ReciprocalRank(), RANKED_FIRST, model)["q"]) == ["b", "a", "c"]


def test_the_order_alone_is_fused_where_that_is_meant() -> None:
    """By their scores b and c are far behind a; by the order they are 3, 2, 1, which is the z-scores 1.22, 0, -1.22."""
    first = {"q": {"a": 100.0, "b": 1.0, "c": 0.0}}
    fused = fuse_runs(Linear(first_stage="order", weight=1.0), first, MODEL)["q"]
    assert list(fused.values()) == pytest.approx([1.224745, 0, -1.224745])


def test_documents_that_the_first_stage_lacks_are_refused() -> None:
    with pytest.raises(ValueError, match="has no document c for query q"):
        fuse_runs(MapFuse(), {"q": {"a": 1.0, "b": 2.0}}, MODEL)


def test_average_precisions_are_learned_and_each_collection_counts_the_same() -> None:
    """Where a is the relevant one, the precisions are 1 and 1 / 3, where b is, 1 / 2 and 1."""
    assert learn("mapfuse", [held_out("a")]) == MapFuse(first_stage_map=1.0, model_map=1 / 3)
    learned = learn("mapfuse", [held_out("a"), held_out("b")])
    assert learned.model_dump() == pytest.approx({"first_stage": "scores", "first_stage_map": 3 / 4, "model_map": 2 / 3})


def test_the_smallest_of_the_best_weights_is_learned() -> None:
    """By hand: a overtakes b where w * 1.2247 - (1 - w) * 1.2247 > (1 - w) * 1.2247, so from 2 / 3 on: .7 is the first tried."""
    assert learn("linear", [held_out("a")]) == Linear(weight=0.7)
    assert learn("linear", [held_out("b")]) == Linear(weight=0.0)


def test_what_has_nothing_to_learn_is_as_it_comes() -> None:
    assert learn("reciprocal_rank", []) == ReciprocalRank()
    assert LEARNERS.keys() < set(FIRST_STAGE_FUSIONS.names())
    with pytest.raises(ValueError, match="unknown fusion with the first stage 'sum'"):
        learn("sum", [])
