"""Work in steps: a generator that yields between its steps and returns its result. Its caller may stop, or let others go on."""

from collections.abc import Callable, Generator
from typing import TypeVar

T = TypeVar("T")
Steps = Generator[None, None, T]
"""Work whose steps are of bounded length."""
Late = Callable[[], bool]
"""Whether time is up: the work then ends with what it has."""


def never() -> bool:
    """Time is never up."""
    return False


def finished(steps: Steps[T]) -> T:
    """The result of work that is done in one go."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
