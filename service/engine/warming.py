"""Models on their way to being warm: one run of one graph at a time, so that other work may come between."""

import logging
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from service.engine.errors import EngineError
from service.engine.instance import Instance
from service.machine import Clock
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
_DONE = object()


class WarmUp(NamedTuple):
    """A model that is being warmed up.

    Attributes:
        runs: what is left to do; each step is one.
        began: as the clock counts.
        first: whether it was there before the thread was started: without it nothing is ready.
    """

    instance: Instance
    runs: Iterator[None]
    began: float
    first: bool


class WarmUps:
    """The models that are not warm yet, the oldest first. Any thread may add one; the model's does the rest, or waits meanwhile.

    Args:
        metrics: record how long each took.
        clock: says how long that is.
    """

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics, self._clock = metrics, clock
        self._waiting: deque[WarmUp] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def first(self) -> bool:
        """Whether one of them was there before the thread was started; those come first."""
        return bool(self._waiting) and self._waiting[0].first

    @property
    def on_device(self) -> bool:
        """Whether the next run is of a graph that the device's thread is going to run; not that of an aggregator."""
        instance = self._waiting[0].instance
        return bool(instance.ranker.ahead) and not instance.combines

    def add(self, instance: Instance, *, first: bool) -> None:
        """Warm this model up as well, after the others."""
        self._waiting.append(WarmUp(instance, instance.first_runs(), self._clock(), first))

    def run(self) -> None:
        """One run of the oldest. Raises what a graph raises, of a model that was there before the start."""
        instance, runs, began, first = self._waiting[0]
        over = instance.warmed.cancelled()
        try:
            over = over or next(runs, _DONE) is _DONE
        except Exception as error:
            if first:
                raise
            over = True
            _fail(instance, EngineError(f"the model cannot be warmed up: {error}"))
        if over:
            self._waiting.popleft()
            self._finish(instance, self._clock() - began)

    def _finish(self, instance: Instance, seconds: float) -> None:
        if instance.ranker.warm and instance.warmed.set_running_or_notify_cancel():
            most = max(encoder.batch_tokens for encoder in instance.encoders)
            log.info("%s: warmed up in %.1f s; a batch has up to %d tokens", instance.name, seconds, most)
            self._metrics.set("load", seconds, phase="warm_up", model=instance.name)
            instance.warmed.set_result(None)

    def stop(self, error: Exception) -> None:
        """All that wait fail with this error."""
        while self._waiting:
            _fail(self._waiting.popleft().instance, error)


def _fail(instance: Instance, error: Exception) -> None:
    if instance.warmed.set_running_or_notify_cancel():
        instance.warmed.set_exception(error)
