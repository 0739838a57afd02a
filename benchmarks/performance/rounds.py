"""Measuring in turns: whatever else the machine does meets every system alike."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict, TypeVar

T = TypeVar("T")


class Spread(TypedDict):
    """What several turns found."""

    median: float
    low: float
    high: float
    turns: int


def in_turns(ways: Mapping[str, Callable[[int], T]], turns: int) -> dict[str, list[T]]:
    """What each way gave, turn by turn; every turn starts with another way, and each is given the turn's number."""
    names = list(ways)
    found: dict[str, list[T]] = {name: [] for name in names}
    for turn in range(turns):
        first = turn % len(names) if names else 0
        for name in names[first:] + names[:first]:
            found[name].append(ways[name](turn))
    return found


def spread(values: Sequence[float]) -> Spread:
    """Median, least and greatest of at least one value."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "turns": len(values)}
