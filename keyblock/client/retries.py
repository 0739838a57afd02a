"""When to ask again, and when no more: the budget of a call, and the pauses between its attempts."""

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 8.0  # seconds
JITTER = 0.25  # of what the service asks for, and at most so much more than that
AGAIN = frozenset({429, 502, 503})  # nothing was done, or, behind a proxy, the replica has gone: another may be there
LEAST = 0.001  # seconds: a timeout of 0 would mean not to wait at all


@dataclass(frozen=True, slots=True)
class Budget:
    """The time that a call has, all its attempts and pauses together; times as `time.monotonic` counts.

    Attributes:
        end: an answer that is not there by then is not waited for.
        retry_end: no attempt begins after that; with a deadline, since an answer would be of no use.
    """

    end: float
    retry_end: float

    @classmethod
    def of(cls, timeout: float, deadline: float | None, margin: float) -> "Budget":
        """A budget that begins now.

        Args:
            timeout: seconds for everything.
            deadline: seconds that the service is given; none for as long as it takes.
            margin: seconds for the way there and back, beyond the deadline.
        """
        now = time.monotonic()
        if deadline is None:
            return cls(now + timeout, now + timeout)
        return cls(now + min(timeout, deadline + margin), now + min(timeout, deadline))

    @property
    def left(self) -> float:
        """Seconds until the end."""
        return self.end - time.monotonic()

    @property
    def retry_left(self) -> float:
        """Seconds in which an attempt may still begin."""
        return self.retry_end - time.monotonic()


def pause(attempt: int, retry_after: float | None, uniform: Callable[[float, float], float] = random.uniform) -> float:
    """Seconds to wait after an attempt, the first being number 0: never less than the service asked for, and never all at once."""
    if retry_after is not None:
        return retry_after + uniform(0, JITTER * max(retry_after, FIRST_PAUSE))
    longest = min(math.ldexp(FIRST_PAUSE, min(attempt, 100)), LONGEST_PAUSE)
    return uniform(longest / 2, longest)


def read_retry_after(value: str | None) -> float | None:
    """The header's seconds, which may be a date; None where it is missing or means nothing."""
    if value is None:
        return None
    try:
        return max(float(int(value)), 0.0)
    except (ValueError, OverflowError):
        pass
    try:
        date = parsedate_to_datetime(value)
        return max((date.replace(tzinfo=date.tzinfo or UTC) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, OverflowError):
        return None
