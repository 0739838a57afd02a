import numpy as np
import pytest

from keyblock.fusion import FEATURES, Fusion, sigmoid
from keyblock.ranking.spans import Sentence
from training.data.types import Span
from training.evaluate.calibration.fit import calibration_gap
from training.evaluate.calibration.spans import ReadDocument, answers, fit_spans, span_probabilities

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
    return ReadDocument("q", "d", np.concatenate([[logit], np.zeros(len(FEATURES) - 1)]), found, gold, 400)


def test_the_rule_that_the_labels_were_drawn_by_is_found_again() -> None:
    collections = [[document() for _ in range(100)], [document() for _ in range(60)]]
    found = fit_spans(collections, Fusion())
    assert (found.bias, found.mark, found.document) == pytest.approx((-1.0, 2.0, 0.5), abs=0.2)
    fresh = [document() for _ in range(100)]
    scores = np.concatenate(span_probabilities(fresh, Fusion(), found))
    assert calibration_gap(scores, np.concatenate([one.labels for one in fresh])) < 0.03


def test_nothing_is_learned_where_nothing_answers() -> None:
    one = document()
    nothing = ReadDocument(one.query, one.document, one.features, one.sentences, [], one.tokens)
    with pytest.raises(ValueError, match="no sentence that was read lies in a gold passage"):
        fit_spans([[nothing]], Fusion())
