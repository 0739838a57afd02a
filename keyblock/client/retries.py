"""When to retry: the time budget of a call, and the pauses between its attempts."""

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 8.0  # seconds
JITTER = 0.25  # the largest random share added to the pause that the service asks for
AGAIN = frozenset({429, 502, 503})  # nothing was done, or, behind a proxy, the replica is gone: another may answer
LEAST = 0.001  # seconds: a timeout of 0 would mean not to wait at all


@dataclass(frozen=True, slots=True)
class Budget:
    """The time of a call with all its attempts and pauses; times are those of `time.monotonic`.

    Attributes:
        end: the client does not wait for an answer any longer.
        retry_end: no attempt begins later; with a deadline, a later answer would be useless.
    """

    end: float
    retry_end: float

    @classmethod
    def of(cls, timeout: float, deadline: float | None, margin: float) -> "Budget":
        """A budget that begins now.

        Args:
            timeout: seconds for everything.
            deadline: seconds that the service has; none: no limit.
            margin: seconds for the network, beyond the deadline.
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
        """Seconds until no attempt may begin."""
        return self.retry_end - time.monotonic()


def pause(attempt: int, retry_after: float | None, uniform: Callable[[float, float], float] = random.uniform) -> float:
    """Seconds to wait after an attempt, of which the first has number 0: at least what the service asks for, plus random jitter."""
    if retry_after is not None:
        return retry_after + uniform(0, JITTER * max(retry_after, FIRST_PAUSE))
    longest = min(math.ldexp(FIRST_PAUSE, min(attempt, 100)), LONGEST_PAUSE)
    return uniform(longest / 2, longest)


def read_retry_after(value: str | None) -> float | None:
    """The header's seconds, which may be a date; None if it is missing or invalid."""
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
