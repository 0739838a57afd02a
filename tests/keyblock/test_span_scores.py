import numpy as np
import pytest
from pydantic import ValidationError

from keyblock.fusion import SpanScores


def test_a_sentence_that_is_marked_more_answers_more_likely_and_so_does_one_of_a_better_document() -> None:
    how = SpanScores(bias=-1.0, mark=2.0, document=0.5)
    # by hand: -1 + 2 * 0.5 + 0.5 * 0 = 0; -1 + 2 * 0.5 + 0.5 * 4 = 2; -1 + 2 * 1.5 + 0.5 * 0 = 2
    found = how.probabilities(np.asarray([0.5, 0.5, 1.5]), np.asarray([0.0, 4.0, 0.0]))
    assert found == pytest.approx([0.5, 1 / (1 + np.exp(-2)), 1 / (1 + np.exp(-2))])


def test_a_negative_weight_would_turn_the_order_around() -> None:
    with pytest.raises(ValidationError):
        SpanScores(mark=-1.0)
