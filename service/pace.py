"""How fast work goes on this machine, from which deadlines and waiting times are estimated; and the slices that work comes in."""

from collections.abc import Callable, Iterator, Sequence

MEMORY = 0.9  # weight that each measurement leaves to earlier ones: about the last ten count


SecondsAhead = Callable[[float], float]
"""Maps the seconds that a new request needs to the seconds of other requests' work that come before it is done."""


def nothing_ahead(_own: float) -> float:
    """The work ahead where nothing waits."""
    return 0.0


def ahead_in_turns(waiting: Sequence[float]) -> SecondsAhead:
    """The work ahead where requests take turns: of each other one, as much as the request's own; `waiting` are their seconds."""
    return lambda own: sum(min(seconds, own) for seconds in waiting)


class Pace:
    """Seconds per unit of work, an average in which recent work counts most. One thread writes; others may read at any time.

    Args:
        cold: seconds per unit that `estimate` assumes before the first measurement.

    Attributes:
        seconds: per unit; 0 before the first measurement.
    """

    def __init__(self, cold: float = 0.0) -> None:
        self.seconds = 0.0
        self._cold = cold
        self._units = self._spent = 0.0

    def measured(self, units: float, seconds: float) -> None:
        """Add a measurement."""
        if units <= 0:
            return
        self._units = MEMORY * self._units + units
        self._spent = MEMORY * self._spent + seconds
        self.seconds = self._spent / self._units if self._units else 0.0

    def estimate(self, units: float) -> float:
        """Estimated seconds for this many units."""
        return (self.seconds or self._cold) * units


def slices(sizes: Sequence[int], max_documents: int, max_size: int) -> Iterator[range]:
    """The documents' numbers in order, in ranges that are as long as the limits allow.

    Args:
        sizes: of the documents, in any unit.
        max_documents: limit of a slice.
        max_size: limit of a slice's total size, in that unit; a larger document gets a slice of its own.
    """
    start = taken = 0
    for number, size in enumerate(sizes):
        if number > start and (number - start == max_documents or taken + size > max_size):
            yield range(start, number)
            start, taken = number, 0
        taken += size
    if start < len(sizes):
        yield range(start, len(sizes))
