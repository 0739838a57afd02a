"""The decisions of the schedule, carried out: batches through the graphs, outputs to the jobs, failures to those they concern."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from keyblock.runtime import batching
from service.engine.encoder import Encoder, Fed
from service.engine.errors import EngineError
from service.engine.jobs import Job
from service.engine.schedule import Combine, Expire, Run, Schedule
from service.machine import Clock
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)


class Runner:
    """Runs on the model's thread, or is told by a simulation of it what came of a batch.

    Args:
        schedule: learns what came of its decisions.
        metrics: counts batches, tokens and padding.
        clock: says how long a batch takes.

    Attributes:
        busy_since: when the work in hand was begun, as the clock counts; None between two works. Any thread may read it.
    """

    def __init__(self, schedule: Schedule[Job], metrics: Metrics, clock: Clock) -> None:
        self.busy_since: float | None = None
        self._schedule = schedule
        self._metrics, self._clock = metrics, clock

    @contextmanager
    def busy(self) -> Iterator[None]:
        """Work on a device, which may hang."""
        self.busy_since = self._clock()
        try:
            yield
        finally:
            self.busy_since = None

    def do(self, decision: Combine[Job] | Expire[Job]) -> None:
        """Do what the schedule decided beside batches."""
        if isinstance(decision, Combine):
            self._step(decision.task)
        else:
            decision.task.future.cancel()  # the waiting request takes what is known by now

    def run(self, run: Run[Job]) -> None:
        """Run a batch, and say what came of it to the schedule and to the jobs."""
        encoder = self.begin(run)
        started = self._clock()
        try:
            with self.busy():
                fed = encoder.score(run.batch, [job.packed[number] for job, number in run.tickets])
        except Exception as error:
            self.failed(run, error)
            return
        self.scored(run, fed, self._clock() - started)

    def begin(self, run: Run[Job]) -> Encoder:
        """A batch begins, on this encoder."""
        for job in run.tasks:
            job.begin()
        return run.tickets[0].task.encoder

    def scored(self, run: Run[Job], fed: Fed, seconds: float) -> None:
        """A batch was run, in so many seconds."""
        _count(self._metrics, run.tickets[0].task.encoder, run, fed.tokens, seconds)
        for row, ((job, number), output) in enumerate(zip(run.tickets, fed.outputs, strict=True)):
            if not job.over:
                job.score(number, output, None if fed.marks is None else fed.marks[row])
        self._schedule.scored(run)

    def failed(self, run: Run[Job], error: Exception) -> None:
        """A batch failed, with what the encoder raised."""
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


def _count(metrics: Metrics, encoder: Encoder, run: Run[Job], n_fed: int, seconds: float) -> None:
    n_tokens = sum(ticket.length for ticket in run.tickets)
    most_rows = max(encoder.most_rows[run.batch.length], run.batch.rows)
    metrics.observe("batch_seconds", seconds, model=encoder.model)
    metrics.observe("batch_fill", len(run.tickets) / most_rows, model=encoder.model)
    metrics.add("batches", model=encoder.model, outcome="ok")
    metrics.add("tokens", n_tokens, model=encoder.model)
    metrics.add("padding", n_fed - n_tokens, model=encoder.model)
