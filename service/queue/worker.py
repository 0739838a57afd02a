"""The model's thread: it alone runs the graphs of all models, on batches that sequences of concurrent requests share.

The schedule decides what runs next, and the worker runs it. Where a GPU computes, a second thread waits for it; meanwhile the
model's thread prepares the next batch and hands out the scores of the last one. A learned aggregator takes a part of a request's
documents as soon as the last of their sequences is scored, then another part each round. A model that is added while others serve
is warmed up between the rounds, one run at a time.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from keyblock.runtime import batching
from service.queue.batch import BatchResult, Caps, Device, Encoder, Filled, settle
from service.queue.job import Job, ModelDeadError, ModelError, ScoreCache, Scored
from service.queue.schedule import Combine, Run, Schedule
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)
T = TypeVar("T")

CLOSE_SECONDS = 5  # to finish the round in hand when the service stops; a device that hangs is not waited for


@dataclass(slots=True)
class WarmUp:
    """A model that waits for its warm-up, or is in it.

    Attributes:
        name: of the model.
        encoders: its graphs.
        runs: the remaining runs; each step makes one.
        at_start: whether the model was added before the thread was started: the worker is not ready before it is warm.
        warmed: done once all runs are made, or failed with the error of a graph. Cancelling it ends the warm-up.
        began: when it was added, in seconds of the clock.
    """

    name: str
    encoders: Sequence[Encoder]
    runs: Iterator[None]
    at_start: bool
    warmed: "Future[None]" = field(default_factory=Future)
    began: float = field(default_factory=time.perf_counter)

    def fail(self, error: Exception) -> None:
        """Tell whoever waits for the model."""
        if self.warmed.set_running_or_notify_cancel():
            self.warmed.set_exception(error)


class Worker:
    """Owns the model's thread and the queue before it.

    Args:
        caps: the limits of a batch.
        metrics: counts batches, tokens and padding.
        score_cache_bytes: the capacity of the score cache; 0 keeps nothing.

    Attributes:
        caps: as given.
        scores: the score cache.
        schedule: decides what runs next; only the model's thread uses it, except for tests and simulations that watch.
        busy_since: when the run in hand began, in seconds of the clock; None between two runs. Any thread may read it.
    """

    def __init__(self, caps: Caps, metrics: Metrics, score_cache_bytes: int = 0) -> None:
        self.scores = ScoreCache(score_cache_bytes, metrics)
        self.schedule: Schedule[Job] = Schedule()
        self.busy_since: float | None = None
        self.caps, self._metrics = caps, metrics
        self._changed = threading.Condition()
        self._new: list[Job] = []  # jobs that the schedule has not accepted yet
        self._warm_ups: deque[WarmUp] = deque()
        self._device = Device(self._changed)
        self._pending: deque[tuple[Run[Job], Future[BatchResult]]] = deque()
        self._closing = False
        self._warm = threading.Event()
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)

    def submit(self, job: Job) -> "Future[Scored]":
        """Hand in a job. Raises ModelDeadError."""
        with self._changed:
            if self._closing or not self.alive:
                raise _not_running()
            self._new.append(job)
            self._changed.notify()
        return job.future

    def warm_up(self, name: str, encoders: Sequence[Encoder], runs: Iterator[None]) -> "Future[None]":
        """Add a model and warm it up; jobs for it wait until it is warm. Raises ModelDeadError.

        If the warm-up of a model fails that was added before the start, the thread ends. If that of a later model fails, only the
        returned future fails; cancelling it ends the warm-up. The worker keeps no reference to a model but through its jobs.

        Args:
            name: of the model.
            encoders: its graphs, warm at the end of the runs.
            runs: see WarmUp.
        """
        with self._changed:
            if self._closing:
                raise _not_running()
            warm_up = WarmUp(name, encoders, runs, at_start=self._thread.ident is None)
            self._warm_ups.append(warm_up)
            self._changed.notify()
        return warm_up.warmed

    def do(self, encoder: Encoder, work: Callable[[], T]) -> T:
        """Make a call on the thread that runs the encoder's batches; providers keep memory for each thread that runs a graph.

        To be used on the model's thread.
        """
        return self._device.do(work) if encoder.ahead else work()

    def start(self) -> None:
        """Start the thread. It warms up first, and jobs wait meanwhile. Without a model the worker is ready at once."""
        if not self._warm_ups:
            self._now_ready()
        self._thread.start()

    def close(self) -> None:
        """Stop after the round in hand; jobs that still wait fail."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_SECONDS)

    @property
    def alive(self) -> bool:
        """Whether the model's thread and the device's thread run, and no batch hangs."""
        return self._thread.is_alive() and not self._device.dead and not self.hung

    @property
    def hung(self) -> bool:
        """Whether a batch takes far longer than any batch should, because a device does not answer."""
        since = self.busy_since
        return since is not None and time.perf_counter() - since > self.caps.hung_after

    @property
    def ready(self) -> bool:
        """Whether the worker is warmed up and runs."""
        return self._warm.is_set() and self.alive

    def jobs(self) -> list[Job]:
        """All jobs that are handed in and not yet forgotten, the oldest first."""
        with self._changed:
            return [*self.schedule.tasks, *self._new]

    def waiting(self) -> list[float]:
        """Seconds of waiting work of each job that somebody still waits for."""
        return [seconds for job in self.jobs() if (seconds := job.seconds_waiting) and not job.finished]

    def measure(self, models: Iterable[str]) -> None:
        """Set the gauges of the work that waits for these models."""
        waiting = [job for job in self.jobs() if job.n_waiting and not job.finished]
        for model in models:
            jobs = [job for job in waiting if job.encoder.model == model]
            self._metrics.set("queued", sum(job.n_waiting for job in jobs), model=model)
            self._metrics.set("queued_requests", len(jobs), model=model)
            self._metrics.set("queue_age", max((job.waited for job in jobs), default=0.0), model=model)

    def _run(self) -> None:
        try:
            while self._run_round():
                pass
        except BaseException:
            log.critical("the model's thread died", exc_info=True)
        finally:
            with self._changed:
                self._closing = True
            for job in self.jobs():
                job.fail(ModelDeadError("the model's thread stopped before this request was scored"))
            while self._warm_ups:
                self._warm_ups.popleft().fail(_not_running())
            self._device.close()

    def _run_round(self) -> bool:
        """Run a round, then one run of a warm-up. False when closing. Keeps no reference to a job or model afterwards."""
        self._wait()
        if self._closing:
            self._finish_pending()
            return False
        while self._oldest_finished:  # results of batches that were under way come first
            self._collect(len(self._pending) - 1)
        self._carry_out()
        self.schedule.begin_round(time.perf_counter())
        self._carry_out()
        if self._warm_ups:
            self._finish_pending()
            self._warm_up()
        return True

    def _wait(self) -> None:
        """Wait until there is something to do, then accept the new jobs."""
        with self._changed:
            while not (self._closing or self._new or self.schedule.ready or self._warm_ups or self._oldest_finished):
                self.schedule.forget()
                self._changed.wait()
            for job in self._new:
                self.schedule.accept(job)
            self._new.clear()

    def _carry_out(self) -> None:
        """Do what the schedule decides, as long as it decides anything."""
        while (decision := self.schedule.next(time.perf_counter())) is not None:
            if isinstance(decision, Run):
                self._run_batch(decision)
            elif isinstance(decision, Combine):
                self._combine(decision.task)
            else:
                decision.task.future.cancel()  # the waiting request takes what is known by now

    def _finish_pending(self) -> None:
        """Carry on until no batch is under way, without a new round."""
        while self.schedule.under_way:
            self._collect(0)
            self._carry_out()

    def _run_batch(self, run: Run[Job]) -> None:
        """Run a batch. If the graph may run ahead, begin the batch and wait only for earlier ones."""
        for job in run.tasks:
            job.begin()
        encoder = run.tickets[0].task.encoder
        try:
            filled = encoder.fill(run.batch, [job.packed[number] for job, number in run.tickets])
        except Exception as error:
            self._failed(run, error)
            return
        compute = partial(self._computed, encoder, filled)
        if encoder.ahead:
            outcome = self._device.begin(compute)
        else:
            self._collect(0)  # those of another model first: only one model computes at a time
            outcome = Future()
            settle(outcome, compute)
        del filled, compute  # nothing keeps the arrays once they are run
        self._pending.append((run, outcome))
        self._collect(encoder.ahead)

    @property
    def _oldest_finished(self) -> bool:
        """Whether the oldest batch under way is over, and its results are not handed out yet."""
        return bool(self._pending) and self._pending[0][1].done()

    def _collect(self, most: int) -> None:
        """Wait until at most `most` batches are under way, and hand out the results of the others.

        Raises the error that ended the device's thread.
        """
        while len(self._pending) > most:
            run, outcome = self._pending.popleft()
            self._device.wait(outcome)
            error = outcome.exception()
            if error is None:
                self._scored(run, outcome.result())
            elif isinstance(error, Exception):
                self._failed(run, error)
            else:
                raise error
            del outcome  # it may be large; do not keep it while waiting for the next

    def _computed(self, encoder: Encoder, filled: Filled) -> BatchResult:
        with self._busy():
            return encoder.run(filled)

    @contextmanager
    def _busy(self) -> Iterator[None]:
        """Note that a device is at work, and may hang; one run at a time."""
        self.busy_since = time.perf_counter()
        try:
            yield
        finally:
            self.busy_since = None

    def _scored(self, run: Run[Job], result: BatchResult) -> None:
        """Hand the outputs of a batch to its jobs, and tell the schedule."""
        encoder = run.tickets[0].task.encoder
        encoder.pace.measured(result.tokens, result.seconds)
        _count(self._metrics, encoder, run, result)
        for row, ((job, number), output) in enumerate(zip(run.tickets, result.outputs, strict=True)):
            if not job.finished:
                job.score(number, output, None if result.marks is None else result.marks[row])
        self.schedule.scored(run)

    def _failed(self, run: Run[Job], error: Exception) -> None:
        """Tell the schedule, and fail the jobs that fail with the batch."""
        failed = self.schedule.failed(run, too_large=isinstance(error, batching.BatchTooLargeError))
        if failed:
            log.error("a batch of %d requests failed", len(failed), exc_info=error)
        else:
            log.warning("a batch of %d x %d tokens failed and is run in halves: %s", run.batch.rows, run.batch.length, error)
        self._metrics.add("batches", model=run.tickets[0].task.encoder.model, outcome="failed" if failed else "split")
        for job in failed:
            job.fail(_failure(error))

    def _combine(self, job: Job) -> None:
        """Aggregate the next documents of a job; the device may compute a batch meanwhile."""
        try:
            job.step()
        except Exception as error:
            log.exception("the documents of a request could not be aggregated")
            job.fail(_failure(error))

    def _warm_up(self) -> None:
        """Make one warm-up run of the first model that is not warm; ready once all models that were added before the start are."""
        warm_up = self._warm_ups[0]
        # before the start, a run may take minutes, since some providers compile: it does not count as a device that hangs
        with nullcontext() if warm_up.at_start else self._busy():
            over = warm_up.warmed.cancelled() or self._warm_up_run(warm_up)
        if over:
            self._warm_ups.popleft()
        if not (self._warm.is_set() or (self._warm_ups and self._warm_ups[0].at_start)):
            self._now_ready()

    def _warm_up_run(self, warm_up: WarmUp) -> bool:
        """Make one run. Returns whether it was the last. Raises the error of a graph if the model was added before the start."""
        try:
            next(warm_up.runs)
            return False
        except StopIteration:
            pass
        except Exception as error:
            if warm_up.at_start:
                raise
            warm_up.fail(ModelError(f"the model cannot be warmed up: {error}"))
            return True
        if warm_up.warmed.set_running_or_notify_cancel():
            seconds = time.perf_counter() - warm_up.began
            most_tokens = max(encoder.batch_tokens for encoder in warm_up.encoders)
            log.info("%s: warmed up in %.1f s; a batch has up to %d tokens", warm_up.name, seconds, most_tokens)
            self._metrics.set("load", seconds, phase="warm_up", model=warm_up.name)
            warm_up.warmed.set_result(None)
        return True

    def _now_ready(self) -> None:
        self._warm.set()
        self._metrics.set("ready", 1)


def _not_running() -> ModelDeadError:
    return ModelDeadError("the model's thread is not running")


def _failure(error: Exception) -> ModelError:
    return ModelError(f"the model failed on this request: {error}")


def _count(metrics: Metrics, encoder: Encoder, run: Run[Job], result: BatchResult) -> None:
    n_tokens = sum(ticket.length for ticket in run.tickets)
    most_rows = max(encoder.most_rows[run.batch.length], run.batch.rows)
    metrics.observe("batch_seconds", result.seconds, model=encoder.model)
    metrics.observe("batch_fill", len(run.tickets) / most_rows, model=encoder.model)
    metrics.add("batches", model=encoder.model, outcome="ok")
    metrics.add("tokens", n_tokens, model=encoder.model)
    metrics.add("padding", result.tokens - n_tokens, model=encoder.model)
