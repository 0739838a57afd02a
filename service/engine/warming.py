"""Warms up models, one run of one graph at a time, so that other work may come between."""

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
    """A model that waits for its warm-up, or is in it.

    Attributes:
        runs: the remaining runs; each step makes one.
        began: when it was added, in seconds of the clock.
        at_start: whether the model was added before the thread was started: the engine is not ready before it is warm.
    """

    instance: Instance
    runs: Iterator[None]
    began: float
    at_start: bool


class WarmUps:
    """The models that are not warm yet, the oldest first. Any thread may add one; the model's thread does the rest.

    Args:
        metrics: records the duration of each warm-up.
        clock: measures that, in seconds.
    """

    def __init__(self, metrics: Metrics, clock: Clock) -> None:
        self._metrics, self._clock = metrics, clock
        self._waiting: deque[WarmUp] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def at_start(self) -> bool:
        """Whether a waiting model was added before the thread was started; those come first."""
        return bool(self._waiting) and self._waiting[0].at_start

    @property
    def on_device(self) -> bool:
        """Whether the next run must be on the device's thread: that of a graph that works ahead, not that of an aggregator."""
        instance = self._waiting[0].instance
        return bool(instance.ranker.ahead) and not instance.combines

    def add(self, instance: Instance, *, at_start: bool) -> None:
        """Queue this model behind the others."""
        self._waiting.append(WarmUp(instance, instance.first_runs(), self._clock(), at_start))

    def run(self) -> None:
        """Make one run of the oldest. Raises the error of a graph if the model was added before the start."""
        instance, runs, began, at_start = self._waiting[0]
        ended = instance.warmed.cancelled()
        try:
            ended = ended or next(runs, _DONE) is _DONE
        except Exception as error:
            if at_start:
                raise
            ended = True
            _fail(instance, EngineError(f"the model cannot be warmed up: {error}"))
        if ended:
            self._waiting.popleft()
            self._finish(instance, self._clock() - began)

    def _finish(self, instance: Instance, seconds: float) -> None:
        if instance.ranker.warm and instance.warmed.set_running_or_notify_cancel():
            batch_tokens = max(encoder.batch_tokens for encoder in instance.encoders)
            log.info("%s: warmed up in %.1f s; a batch has up to %d tokens", instance.name, seconds, batch_tokens)
            self._metrics.set("load", seconds, phase="warm_up", model=instance.name)
            instance.warmed.set_result(None)

    def stop(self, error: Exception) -> None:
        """Fail all warm-ups that wait with this error."""
        while self._waiting:
            _fail(self._waiting.popleft().instance, error)


def _fail(instance: Instance, error: Exception) -> None:
    if instance.warmed.set_running_or_notify_cancel():
        instance.warmed.set_exception(error)
