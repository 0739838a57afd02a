"""The steps of a call, which a client performs blocking or awaiting: a request to send, a pause, work for a processor."""

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeVar

from keyblock.client.retries import Budget

LARGE = 1 << 18  # characters or bytes from which on a thread reads and writes text, not the event loop

T = TypeVar("T")


class Send(NamedTuple):
    """A request to send now; its outcome is an Answer or a Failure."""

    method: str
    url: str
    content: bytes
    headers: Mapping[str, str]
    budget: Budget


class Pause(NamedTuple):
    """Seconds to wait."""

    seconds: float


class Work(NamedTuple):
    """Work for a processor that may take long; its outcome is the result of `do`. With an event loop, a thread does it."""

    do: Callable[[], Any]


class Answer(NamedTuple):
    """An HTTP answer."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Failure(NamedTuple):
    """Why there is no answer.

    Attributes:
        again: whether another attempt may get one.
        late: whether time was up.
    """

    problem: str
    again: bool = True
    late: bool = False


Steps = Generator[Send | Pause | Work, Any, T]


def perform(do: Callable[[], T], size: int) -> Steps[T]:
    """The result of `do`: called at once if the work is small, else as a separate step."""
    if size < LARGE:
        return do()
    done: T = yield Work(do)
    return done
