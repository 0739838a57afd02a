"""Logits behind relevances."""

import pytest

from benchmarks.performance.parity import example, largest_difference, logit_of
from benchmarks.performance.peers import PeerError


def test_a_logit_comes_back_from_its_sigmoid() -> None:
    assert logit_of(0.5) == 0.0
    assert logit_of(0.8807970779778823) == pytest.approx(2.0)
    assert logit_of(0.0) == pytest.approx(-logit_of(1.0))


def test_the_largest_difference() -> None:
    assert largest_difference([0.5, 0.8807970779778823], [0.25, 2.0]) == pytest.approx(0.25)
    with pytest.raises(PeerError, match="1 scores for 2 documents"):
        largest_difference([0.5], [0.0, 0.0])


def test_the_example_has_paragraphs() -> None:
    assert len(example().documents) > 5
