"""The steps of a call, which a client takes in its own way of waiting: a request to send, a pause, work for a processor."""

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeVar

from keyblock.client.retries import Budget

LARGE = 1 << 18  # characters or bytes from which on text is written and read beside an event loop

T = TypeVar("T")


class Send(NamedTuple):
    """A request to be sent now; its outcome is an Answer or a Failure."""

    method: str
    url: str
    content: bytes
    headers: Mapping[str, str]
    budget: Budget


class Pause(NamedTuple):
    """Seconds to wait."""

    seconds: float


class Work(NamedTuple):
    """Work for a processor that may take long; its outcome is what `do` returns. Under an event loop it is done in a thread."""

    do: Callable[[], Any]


class Answer(NamedTuple):
    """What was answered."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Failure(NamedTuple):
    """Why there is no answer.

    Attributes:
        again: whether there may be one another time.
        late: whether there was no more time for it.
    """

    problem: str
    again: bool = True
    late: bool = False


Steps = Generator[Send | Pause | Work, Any, T]


def perform(do: Callable[[], T], size: int) -> Steps[T]:
    """The work done: at once where it is small, else as a step of its own."""
    if size < LARGE:
        return do()
    done: T = yield Work(do)
    return done
