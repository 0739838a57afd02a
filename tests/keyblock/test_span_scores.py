import numpy as np
import pytest
from pydantic import ValidationError

from keyblock.span_scores import SpanScores


def test_a_sentence_that_is_marked_more_answers_more_likely_and_none_is_likelier_than_its_document() -> None:
    how = SpanScores(bias=-1.0, mark=2.0)
    # by hand: sigmoid(0) * sigmoid(-1 + 2 * .5) = .5 * .5; a document that answers for sure: 1 * .5; sigmoid(0) * sigmoid(9) = .5
    found = how.probabilities(np.asarray([0.5, 0.5, 5.0]), np.asarray([0.0, 40.0, 0.0]))
    assert found == pytest.approx([0.25, 0.5, 0.5 / (1 + np.exp(-9))])


def test_a_negative_weight_would_turn_the_order_around() -> None:
    with pytest.raises(ValidationError):
        SpanScores(mark=-1.0)
