"""How fast this machine is just now, as measured: what deadlines and waiting times are reckoned by."""

MEMORY = 0.9  # of what was known when something new is measured: about the last ten measurements count


class Pace:
    """Seconds for a unit of work, an average in which recent work counts most. One writer; others may read at any time.

    Attributes:
        seconds: for a unit; 0 before anything was measured.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self._units = self._spent = 0.0

    def measured(self, units: float, seconds: float) -> None:
        """So many units took so long."""
        if units <= 0:
            return
        self._units = MEMORY * self._units + units
        self._spent = MEMORY * self._spent + seconds
        self.seconds = self._spent / self._units if self._units else 0.0

    def estimate(self, units: float) -> float:
        """Seconds that so many units are going to take."""
        return self.seconds * units
