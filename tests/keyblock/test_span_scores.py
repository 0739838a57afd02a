import numpy as np
import pytest
from pydantic import ValidationError

from keyblock.span_scores import SpanScores


def test_a_sentence_that_is_marked_more_answers_more_likely_and_so_does_one_of_a_better_document() -> None:
    how = SpanScores(bias=-1.0, mark=2.0, document=0.5)
    # by hand: -1 + 2 * -0.5 + 0.5 * 2 = -1; -1 + 2 * 0.5 + 0.5 * 2 = 1; and 2 in a document of logit 4
    assert how.probabilities(np.asarray([-0.5, 0.5]), 2.0) == pytest.approx([1 / (1 + np.e), 1 / (1 + np.exp(-1))])
    assert how.probabilities(np.asarray([0.5]), 4.0) == pytest.approx([1 / (1 + np.exp(-2))])


def test_no_sentence_is_likelier_than_its_document_and_their_odds_keep_their_ratio() -> None:
    """By hand: logits 3 and 1 in a document of logit -1 are lowered by 4."""
    found = SpanScores(bias=0.0, mark=1.0).probabilities(np.asarray([3.0, 1.0]), -1.0)
    assert found == pytest.approx([1 / (1 + np.exp(1)), 1 / (1 + np.exp(3))])
    assert SpanScores().probabilities(np.zeros(0), 0.0).shape == (0,)


def test_a_negative_weight_would_turn_the_order_around() -> None:
    with pytest.raises(ValidationError):
        SpanScores(mark=-1.0)
