"""Measures in turns, so that other load on the machine affects every system alike."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import TypedDict, TypeVar

T = TypeVar("T")


class Spread(TypedDict):
    """Median and range of several turns."""

    median: float
    low: float
    high: float
    turns: int


def in_turns(ways: Mapping[str, Callable[[int], T]], turns: int) -> dict[str, list[T]]:
    """Call each way once per turn, with the turn's number. Each turn starts with the next way. Returns the results by way."""
    names = list(ways)
    found: dict[str, list[T]] = {name: [] for name in names}
    for turn in range(turns):
        first = turn % len(names) if names else 0
        for name in names[first:] + names[:first]:
            found[name].append(ways[name](turn))
    return found


def spread(values: Sequence[float]) -> Spread:
    """Median, lowest and highest of at least one value."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values), "turns": len(values)}
