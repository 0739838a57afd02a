"""How long a request spends where."""

import time

from service.metrics import Metrics


class Stages:
    """Times of one request; each stage is observed in the metrics when it ends.

    Attributes:
        began: when its last byte was there, as `time.perf_counter` counts.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self.began = self._last = time.perf_counter()
        self._seconds: dict[str, float] = {}

    def end(self, stage: str) -> None:
        """A stage ends now that began where the one before it ended."""
        now = time.perf_counter()
        self.add(stage, now - self._last)
        self._last = now

    def add(self, stage: str, seconds: float) -> None:
        """A stage took so long; measured elsewhere."""
        self._seconds[stage] = seconds
        self._metrics.observe("stages", seconds, stage=stage)

    def skip(self) -> None:
        """What happened since the last end belongs to no stage, or was added."""
        self._last = time.perf_counter()

    @property
    def total(self) -> float:
        """Seconds since the request was there."""
        return time.perf_counter() - self.began

    def milliseconds(self) -> dict[str, float]:
        """By stage, and their `total`, rounded to microseconds."""
        return {stage: round(seconds * 1e3, 3) for stage, seconds in (*self._seconds.items(), ("total", self.total))}
