"""The times of a request's stages."""

import time
from typing import NamedTuple

from service.telemetry.metrics import Metrics


class Interval(NamedTuple):
    """A stage, with its start and end in seconds of the clock."""

    stage: str
    start: float
    end: float


class Stages:
    """Times of one request, one stage after the other; each is observed in the metrics when it ends.

    Attributes:
        began: when the last byte of the request arrived, in seconds of the clock.
        intervals: of the stages that have ended.
        trace_id: of the request's trace, if it has one.
        metrics: may be replaced by those of the requested model before the first stage ends.

    Args:
        metrics: gets the times of the stages.
        trace_id: of the request's trace, where it has one.
    """

    def __init__(self, metrics: Metrics, trace_id: str | None = None) -> None:
        self.metrics = metrics
        self.trace_id = trace_id
        self.began = self._last = time.perf_counter()
        self.intervals: list[Interval] = []

    def end(self, stage: str) -> None:
        """End a stage that began at the end of the one before it."""
        self.add(stage, time.perf_counter() - self._last)

    def add(self, stage: str, seconds: float) -> None:
        """Add a stage that began at the end of the one before it, and whose time was measured elsewhere."""
        start, self._last = self._last, self._last + seconds
        self.intervals.append(Interval(stage, start, self._last))
        self.metrics.observe("stages", seconds, self.trace_id, stage=stage)

    @property
    def total(self) -> float:
        """Seconds since the request arrived."""
        return time.perf_counter() - self.began

    def milliseconds(self) -> dict[str, float]:
        """Milliseconds by stage, and their `total`, rounded to microseconds."""
        taken = [(stage, end - start) for stage, start, end in self.intervals]
        return {stage: round(seconds * 1e3, 3) for stage, seconds in (*taken, ("total", self.total))}

    def server_timing(self) -> str:
        """The times as the value of a Server-Timing header, which browsers and proxies read."""
        return ", ".join(f"{stage};dur={milliseconds:g}" for stage, milliseconds in self.milliseconds().items())
