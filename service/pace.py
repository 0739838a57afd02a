"""Measures the current speed of this machine, from which deadlines and waiting times are estimated."""

MEMORY = 0.9  # weight that each measurement leaves to earlier ones: about the last ten count


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
