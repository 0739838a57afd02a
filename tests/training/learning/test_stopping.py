"""Early stopping by hand, and as a property: it is a function of the measurements alone, however often it is saved between."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.learning.stopping import EarlyStopping, dev_quality


def test_the_quality_is_the_mean_over_collections() -> None:
    dev = {"a": {"RR@10": 0.5, "nDCG@10": 0.9}, "b": {"RR@10": 0.8, "nDCG@10": 0.1}}
    assert dev_quality(dev) == pytest.approx(0.65)


def test_by_hand() -> None:
    """Two in a row without a better one: an equal one counts as none."""
    stopping = EarlyStopping(patience=2)
    seen = [(stopping.improves(quality), stopping.exhausted) for quality in (0.3, 0.2, 0.5, 0.5, 0.4)]
    assert seen == [(True, False), (False, False), (True, False), (False, False), (False, True)]
    assert stopping.best == 0.5


@given(st.lists(st.floats(0, 1)), st.integers(1, 5), st.data())
def test_saved_and_loaded_it_goes_on(values: list[float], patience: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(values)))
    whole, first, second = (EarlyStopping(patience) for _ in range(3))
    expected = [(whole.improves(value), whole.exhausted) for value in values]
    got = [(first.improves(value), first.exhausted) for value in values[:cut]]
    second.load_state_dict(first.state_dict())
    assert got + [(second.improves(value), second.exhausted) for value in values[cut:]] == expected
    assert second.best == max(values, default=-math.inf)


@given(st.lists(st.floats(0, 1), min_size=1))
def test_without_patience_it_never_stops(values: list[float]) -> None:
    stopping = EarlyStopping()
    for value in values:
        stopping.improves(value)
    assert not stopping.exhausted
