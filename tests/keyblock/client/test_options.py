"""Options of a client; its budgets, pauses and timeouts; and which failures are worth another attempt."""

import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from keyblock.client import Client, RerankOptions
from keyblock.client.calls import Failure
from keyblock.client.options import OWN
from keyblock.client.retries import FIRST_PAUSE, LONGEST_PAUSE, Budget, pause, read_retry_after
from keyblock.client.transport import CONNECT_SECONDS, LEAST, MOST, Timeouts, failure
from keyblock.wire import NOT_HONOURED, Options


def test_options_are_those_of_the_wire() -> None:
    elsewhere = {*NOT_HONOURED, "rank_fields"}  # of Cohere's clients, where documents are rows of a table
    assert set(RerankOptions.__annotations__) - OWN == set(Options.model_fields) - elsewhere


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"url": "localhost:8000"}, "url must be like http://127.0.0.1:8000, not 'localhost:8000'"),
        *[({"url": f"http://{rest}"}, "url must be like") for rest in ("x?y=1", "x:80a", "x:99999", "x:0", "x\n", "[x")],
        ({"compression": "br"}, "compression must be 'gzip' or None, not 'br'"),
        ({"timeout": -1}, "timeout must be at least 0.0, not -1"),
        ({"timeout": float("nan")}, "timeout must be at least 0.0, not nan"),
        ({"max_connections": 0}, "max_connections must be at least 1, not 0"),
        ({"api_key": "kb_secret\n"}, "^api_key has a character that no header can carry, such as the end of a line$"),
        ({"api_key": "schlüssel"}, "^api_key has a character"),
        ({"headers": {"x-team": "a\r\nb"}}, "^x-team has a character"),
    ],
)
def test_a_client_that_cannot_be_made(options: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        Client(**options)


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


def test_timeouts_shrink_with_the_budget() -> None:
    """Each phase of a request has what is left when it begins."""
    timeouts = Timeouts(Budget.of(60, None, 0))
    first = timeouts.get("read")
    time.sleep(0.05)
    assert LEAST <= timeouts.get("read") <= first - 0.05
    over = Timeouts(Budget.of(0, None, 0))
    assert over.get("write") == over.get("connect") == LEAST
    endless = Timeouts(Budget.of(float("inf"), None, 0))
    assert (endless.get("connect"), endless.get("pool")) == (CONNECT_SECONDS, MOST)


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (httpx.ConnectTimeout(""), Failure("ConnectTimeout")),
        (httpx.ReadTimeout("slow"), Failure("slow", late=True)),
        (httpx.PoolTimeout(""), Failure("PoolTimeout", late=True)),
        (httpx.RemoteProtocolError("gone"), Failure("gone")),
        (httpx.LocalProtocolError("a bad header"), Failure("a bad header", again=False)),
    ],
)
def test_failures(error: httpx.RequestError, expected: Failure) -> None:
    assert failure(error) == expected
