"""Carries out the schedule's decisions: runs batches through graphs, hands outputs to jobs, and failures to the jobs concerned."""

import logging
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from keyblock.runtime import batching
from service.engine.device import Device, Flight
from service.engine.encoder import Encoder, Fed, Filled
from service.engine.errors import EngineError
from service.engine.jobs import Job
from service.engine.schedule import Combine, Expire, Run, Schedule
from service.machine import Clock
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)


class Runner:
    """Works on the model's thread; the device's thread runs graphs that may run ahead.

    Args:
        schedule: is notified of the results of its decisions.
        metrics: counts batches, tokens and padding.
        device: runs the batches of graphs that work ahead.
        clock: gives the time of `busy_since`.

    Attributes:
        busy_since: when the run in hand began, in seconds of the clock; None between two runs. Any thread may read it.
    """

    def __init__(self, schedule: Schedule[Job], metrics: Metrics, device: Device, clock: Clock) -> None:
        self.busy_since: float | None = None
        self._schedule, self._device = schedule, device
        self._metrics, self._clock = metrics, clock
        self._flights: deque[tuple[Run[Job], Flight[Fed]]] = deque()

    @property
    def landed(self) -> bool:
        """Whether the oldest batch under way is over, and its results are not handed out yet."""
        return bool(self._flights) and self._flights[0][1].finished

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Note that a device is at work, and may hang; one run at a time."""
        self.busy_since = self._clock()
        try:
            yield
        finally:
            self.busy_since = None

    def do(self, decision: Combine[Job] | Expire[Job]) -> None:
        """Carry out a decision other than a batch; the device may compute a batch meanwhile."""
        if isinstance(decision, Combine):
            self._step(decision.task)
        else:
            decision.task.future.cancel()  # the waiting request takes what is known by now

    def run(self, run: Run[Job]) -> None:
        """Run a batch. If the graph may run ahead, begin the batch and wait only for earlier ones.

        The schedule and the jobs get the results of each batch that is over.
        """
        for job in run.tasks:
            job.begin()
        encoder = run.tickets[0].task.encoder
        try:
            filled = encoder.fill(run.batch, [job.packed[number] for job, number in run.tickets])
        except Exception as error:
            self._failed(run, error)
            return
        flight = Flight(partial(self._computed, encoder, filled))
        del filled  # the flight forgets it as soon as it is run
        if encoder.ahead:
            self._device.begin(flight)
        else:
            self.land(0)  # those of another model first: only one model computes at a time
            flight.run()
        self._flights.append((run, flight))
        self.land(encoder.ahead)

    def land(self, most: int) -> None:
        """Wait until at most `most` batches are under way, and hand out the results of the others.

        Raises the error that ended the device's thread.
        """
        while len(self._flights) > most:
            run, flight = self._flights.popleft()
            self._device.wait(flight)
            outcome = flight.take()
            if isinstance(outcome, Exception):
                self._failed(run, outcome)
            elif isinstance(outcome, BaseException):
                raise outcome
            else:
                self._scored(run, outcome)
            del outcome  # it may be large; do not keep it while waiting for the next

    def land_finished(self) -> None:
        """Hand out the results of the batches that are over, without waiting for others."""
        while self.landed:
            self.land(len(self._flights) - 1)

    def _computed(self, encoder: Encoder, filled: Filled) -> Fed:
        with self.busy():
            return encoder.run(filled)

    def _scored(self, run: Run[Job], fed: Fed) -> None:
        encoder = run.tickets[0].task.encoder
        encoder.pace.measured(fed.tokens, fed.seconds)
        _count(self._metrics, encoder, run, fed)
        for row, ((job, number), output) in enumerate(zip(run.tickets, fed.outputs, strict=True)):
            if not job.finished:
                job.score(number, output, None if fed.marks is None else fed.marks[row])
        self._schedule.scored(run)

    def _failed(self, run: Run[Job], error: Exception) -> None:
        failed = self._schedule.failed(run, too_large=isinstance(error, batching.BatchTooLargeError))
        if failed:
            log.error("a batch of %d requests failed", len(failed), exc_info=error)
        else:
            log.warning("a batch of %d x %d tokens failed and is run in halves: %s", run.batch.rows, run.batch.length, error)
        self._metrics.add("batches", model=run.tickets[0].task.encoder.model, outcome="failed" if failed else "split")
        for job in failed:
            job.fail(_failed(error))

    def _step(self, job: Job) -> None:
        try:
            job.step()
        except Exception as error:
            log.exception("the documents of a request could not be aggregated")
            job.fail(_failed(error))


def _failed(error: Exception) -> EngineError:
    return EngineError(f"the model failed on this request: {error}")


def _count(metrics: Metrics, encoder: Encoder, run: Run[Job], fed: Fed) -> None:
    n_tokens = sum(ticket.length for ticket in run.tickets)
    most_rows = max(encoder.most_rows[run.batch.length], run.batch.rows)
    metrics.observe("batch_seconds", fed.seconds, model=encoder.model)
    metrics.observe("batch_fill", len(run.tickets) / most_rows, model=encoder.model)
    metrics.add("batches", model=encoder.model, outcome="ok")
    metrics.add("tokens", n_tokens, model=encoder.model)
    metrics.add("padding", fed.tokens - n_tokens, model=encoder.model)
