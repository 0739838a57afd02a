"""What a step takes: the faster of two tries, by the clock; the real clock gives something."""

from collections.abc import Callable

import pytest

from training.commands import step_time
from training.commands.step_time import TOKENS, seconds_per_token
from training.recipe import Recipe


def test_the_faster_try_counts(make_recipe: Callable[..., Recipe], monkeypatch: pytest.MonkeyPatch) -> None:
    """5 sequences of 100 tokens take 8 s, then 4 s."""
    clock = iter([0.0, 8.0, 10.0, 14.0])
    monkeypatch.setattr(step_time.time, "perf_counter", lambda: next(clock))
    assert seconds_per_token(make_recipe(), 100) == pytest.approx(4 / 500)


@pytest.mark.parametrize("length", [8, 100])
def test_by_the_real_clock(make_recipe: Callable[..., Recipe], length: int) -> None:
    assert 0 < seconds_per_token(make_recipe(), length) < 120 / TOKENS
