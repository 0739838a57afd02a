"""The decisions of the schedule, carried out: batches through the graphs, outputs to the jobs, failures to those they concern."""

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
    """Runs on the model's thread; only graphs run on the device's, where there is one to run ahead of.

    Args:
        schedule: learns what came of its decisions.
        metrics: counts batches, tokens and padding.
        device: runs batches whose graphs say so.
        clock: says since when it is busy.

    Attributes:
        busy_since: when the work in hand was begun, as the clock counts; None between two works. Any thread may read it.
    """

    def __init__(self, schedule: Schedule[Job], metrics: Metrics, device: Device, clock: Clock) -> None:
        self.busy_since: float | None = None
        self._schedule, self._device = schedule, device
        self._metrics, self._clock = metrics, clock
        self._flights: deque[tuple[Run[Job], Flight[Fed]]] = deque()

    @property
    def landed(self) -> bool:
        """Whether the oldest batch under way is over, and nobody has been told."""
        return bool(self._flights) and self._flights[0][1].over

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Work on a device, which may hang; one at a time."""
        self.busy_since = self._clock()
        try:
            yield
        finally:
            self.busy_since = None

    def do(self, decision: Combine[Job] | Expire[Job]) -> None:
        """Do what the schedule decided beside batches; one may be computed meanwhile."""
        if isinstance(decision, Combine):
            self._step(decision.task)
        else:
            decision.task.future.cancel()  # the waiting request takes what is known by now

    def run(self, run: Run[Job]) -> None:
        """Run a batch; of a graph to run ahead of, begin it, and wait for those before it.

        What came of each that is over is said to the schedule and to the jobs.
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
            self.land(0)  # another model's: one at a time computes
            flight.run()
        self._flights.append((run, flight))
        self.land(encoder.ahead)

    def land(self, most: int) -> None:
        """Wait until at most so many batches are under way, and say what came of the others.

        Raises what ended the device's thread.
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
            del outcome  # it may be large, and the next is waited for

    def land_all_over(self) -> None:
        """Say what came of those that are over, and wait for none."""
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
            if not job.over:
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
