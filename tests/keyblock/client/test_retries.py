"""Budgets and pauses: never before the service said, never after the time is up."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.client.retries import FIRST_PAUSE, LONGEST_PAUSE, Budget, pause, read_retry_after


@given(st.integers(0, 2000), st.none() | st.floats(0, 100))
def test_pauses(attempt: int, retry_after: float | None) -> None:
    seconds = pause(attempt, retry_after)
    if retry_after is None:
        assert FIRST_PAUSE / 2 <= seconds <= LONGEST_PAUSE
    else:
        assert retry_after <= seconds <= 1.25 * retry_after + FIRST_PAUSE


def test_pauses_grow_and_differ() -> None:
    assert max(pause(0, None) for _ in range(50)) < min(pause(3, None) for _ in range(50))
    assert len({pause(0, 1.0) for _ in range(50)}) > 40


@pytest.mark.parametrize(
    ("timeout", "deadline", "end", "retry_end"), [(60, None, 60, 60), (60, 0.5, 1.5, 0.5), (1, 5, 1, 1), (1, 0.5, 1, 0.5)]
)
def test_budgets(timeout: float, deadline: float | None, end: float, retry_end: float) -> None:
    budget = Budget.of(timeout, deadline, margin=1.0)
    assert end - 0.5 < budget.left <= end
    assert budget.end - budget.retry_end == pytest.approx(end - retry_end)
    assert budget.retry_end <= budget.end


@pytest.mark.parametrize(
    ("value", "seconds"), [(None, None), ("3", 3), ("-3", 0), ("", None), ("soon", None), ("9" * 400, None), ("9" * 5000, None)]
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert read_retry_after(value) == seconds


def test_retry_after_may_be_a_date() -> None:
    then = datetime.now(UTC) + timedelta(seconds=100)
    assert read_retry_after(format_datetime(then, usegmt=True)) == pytest.approx(100, abs=30)
    assert read_retry_after("Thu, 01 Jan 1970 00:00:00 GMT") == 0.0
