"""What both clients know of httpx: each phase of a request has what is left of the budget when it begins."""

import time

import httpx
import pytest

from keyblock.client.calls import Failure
from keyblock.client.retries import Budget
from keyblock.client.transport import CONNECT_SECONDS, LEAST, MOST, Timeouts, failure


def test_timeouts_shrink_with_the_budget() -> None:
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
