"""The model's thread: it alone runs the graphs of all models, on batches that sequences of concurrent requests share.

Work is done in rounds of a few batches, so a newcomer waits for a round at most. Three of four sequences are of the request with
the least left to do, the fourth of the oldest one: a small request does not wait for a large one, and a large one gets on however
many small ones come. Then the round is sorted by graph and length, batched and run; a batch is of one graph, and so of one model.
A learned aggregator takes a part of a request's documents as soon as the last of their sequences is scored, then another each
round. A model that comes while others serve is warmed up between the rounds, a run at a time.
"""

import logging
import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.runtime import batching
from service.engine.encoder import Caps, Encoder
from service.engine.instance import Graphs, Instance
from service.engine.jobs import Job, Scored, Ticket
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

ROUND_BATCHES = 2  # full batches in a round: more sorts better, fewer lets newcomers in sooner
TURNS_TO_OLDEST = 4  # of so many sequences, one is of the oldest request, the others of the one with the least left to do
CLOSE_SECONDS = 5  # for the round in hand, when the service stops; a device that hangs is not waited for
_ROUNDING = 1e-9
_DONE = object()


class EngineError(RuntimeError):
    """The batch that held a request's sequences failed; the engine goes on."""


class EngineDeadError(RuntimeError):
    """The model's thread is not running: nothing is going to be scored."""


class WarmUp(NamedTuple):
    """A model that is being warmed up.

    Attributes:
        runs: what is left to do; each step is one.
        began: as `time.perf_counter` counts.
        first: whether it was there before the thread was started: without it nothing is ready.
    """

    instance: Instance
    runs: Iterator[None]
    began: float
    first: bool


class Engine:
    """Owns the thread.

    Args:
        caps: of a batch.
        metrics: counts batches, tokens and padding.
    """

    def __init__(self, caps: Caps, metrics: Metrics) -> None:
        self._caps = caps
        self._busy_since: float | None = None
        self._turns = 0  # sequences taken so far
        self._metrics = metrics
        self._jobs: list[Job] = []
        self._warm_ups: deque[WarmUp] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._warm = threading.Event()
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)

    def add(self, name: str, graphs: Graphs, pipeline: Pipeline) -> Instance:
        """Take a model in: it is warmed up, and jobs for it wait until it is. Raises EngineDeadError.

        If one fails to that was there before the start, the thread ends; of a later one only `Instance.warmed` fails. Nothing is
        kept of a model but its jobs.
        """
        instance = Instance(name, graphs, pipeline, self._caps, self.submit)
        with self._changed:
            if self._closing:
                raise _not_running()
            first = self._thread.ident is None
            self._warm_ups.append(WarmUp(instance, instance.first_runs(), time.perf_counter(), first))
            self._changed.notify()
        return instance

    def start(self) -> None:
        """Start the thread; it warms up first, and jobs handed in meanwhile wait."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the round in hand; jobs still waiting fail."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join(CLOSE_SECONDS)

    @property
    def alive(self) -> bool:
        """Whether the thread runs and gets on with its work."""
        return self._thread.is_alive() and not self.hung

    @property
    def hung(self) -> bool:
        """Whether a batch takes far longer than any batch does: a device that does not answer."""
        since = self._busy_since
        return since is not None and time.perf_counter() - since > self._caps.hung_after

    @property
    def ready(self) -> bool:
        """Whether it is warmed up and runs."""
        return self._warm.is_set() and self.alive

    def backlog(self, share: float = math.inf) -> float:
        """Seconds of work that wait for the models; of each job at most `share`: turns are taken."""
        return sum(min(job.seconds_waiting, share) for job in list(self._jobs))

    def measure(self, models: Iterable[str]) -> None:
        """Set the gauges of what waits for these models."""
        waiting = [job for job in list(self._jobs) if job.n_waiting and not job.over]
        for model in models:
            jobs = [job for job in waiting if job.encoder.model == model]
            self._metrics.set("queued", sum(job.n_waiting for job in jobs), model=model)
            self._metrics.set("queued_requests", len(jobs), model=model)
            self._metrics.set("queue_age", max((job.waited for job in jobs), default=0.0), model=model)

    def submit(self, job: Job) -> Future[Scored]:
        """Hand in a job. Raises EngineDeadError."""
        with self._changed:
            if self._closing or not self.alive:
                raise _not_running()
            self._jobs.append(job)
            self._changed.notify()
        return job.future

    def _run(self) -> None:
        try:
            while self._go_on():
                pass
        except BaseException:
            log.critical("the model's thread died", exc_info=True)
        finally:
            with self._changed:
                self._closing = True
                stranded, self._jobs = self._jobs, []
                cold = list(self._warm_ups)
                self._warm_ups.clear()
            for job in stranded:
                job.fail(EngineDeadError("the model's thread stopped before this request was scored"))
            for warm_up in cold:
                _fail(warm_up.instance, _not_running())

    def _go_on(self) -> bool:
        """A round of what waits, and a run of a warm-up; False when closing. It ends holding nothing of any job or model."""
        jobs = self._wait()
        if self._closing:
            return False
        if jobs:
            self._run_round(jobs)
        if self._warm_ups:
            self._warm_up()
        return True

    def _wait(self) -> list[Job]:
        """Wait until there is something to do; the jobs whose models are warm."""
        with self._changed:
            self._forget()
            while not (self._jobs or self._warm_ups or self._closing):
                self._changed.wait()
                self._forget()
            return [job for job in self._jobs if job.encoder.warm]

    def _forget(self) -> None:
        self._jobs = [job for job in self._jobs if not job.over]

    def _warm_up(self) -> None:
        """One run of the first model that is not warm."""
        instance, runs, began, first = self._warm_ups[0]
        over = instance.warmed.cancelled()
        try:
            if not first:  # whose runs may take minutes, where a provider compiles
                self._busy_since = time.perf_counter()
            over = over or next(runs, _DONE) is _DONE
        except Exception as error:
            if first:
                raise
            over = True
            _fail(instance, _failed("the model cannot be warmed up", error))
        finally:
            self._busy_since = None
        if over:
            self._warm_ups.popleft()
            self._warmed(instance, time.perf_counter() - began)

    def _warmed(self, instance: Instance, seconds: float) -> None:
        if instance.ranker.warm and instance.warmed.set_running_or_notify_cancel():
            most = max(encoder.batch_tokens for encoder in instance.encoders)
            log.info("%s: warmed up in %.1f s; a batch has up to %d tokens", instance.name, seconds, most)
            self._metrics.set("load", seconds, phase="warm_up", model=instance.name)
            instance.warmed.set_result(None)
        if not any(warm_up.first for warm_up in self._warm_ups):
            self._warm.set()
            self._metrics.set("ready", 1)

    def _run_round(self, jobs: list[Job]) -> None:
        for job in jobs:
            if job.complete:  # of more documents than a part has
                self._step(job)
        by_encoder: dict[Encoder, list[Ticket]] = {}
        for ticket in self._take(jobs):
            by_encoder.setdefault(ticket.job.encoder, []).append(ticket)
        for encoder, tickets in by_encoder.items():
            packed = [ticket.packed for ticket in tickets]
            for batch in encoder.batches(packed):
                members = [tickets[position] for position in batch.positions]
                if not all(ticket.job.over for ticket in members):
                    self._run_batch(encoder, batch, members, packed)

    def _take(self, jobs: list[Job]) -> list[Ticket]:
        """Sequences of the next round; `jobs` in the order in which they came.

        Most turns are for the job with the least left to do, of the smallest priority: it is soon out of the way. Every fourth,
        counted over all rounds, is for the oldest job of any priority: whatever comes, each gets on.
        """
        room = float(ROUND_BATCHES)
        tickets: list[Ticket] = []
        while room > _ROUNDING and (waiting := [job for job in jobs if job.n_waiting]):
            self._turns += 1
            oldest_is_due = self._turns % TURNS_TO_OLDEST == 0
            job = waiting[0] if oldest_is_due else min(waiting, key=lambda job: (job.priority, job.seconds_waiting))
            tickets.append(Ticket(job, job.take()))
            room -= batching.bucket(len(tickets[-1].packed.ids)) / job.encoder.batch_tokens
        return tickets

    def _run_batch(self, encoder: Encoder, batch: batching.Batch, members: list[Ticket], packed: list[Packed]) -> None:
        jobs = list(dict.fromkeys(ticket.job for ticket in members))
        for job in jobs:
            job.begin()
        try:
            self._busy_since = started = time.perf_counter()
            outputs, n_fed = encoder.score(batch, packed)
            seconds = time.perf_counter() - started
        except Exception as error:
            if len(members) > 1 and (len(jobs) > 1 or isinstance(error, batching.BatchTooLargeError)):
                self._run_halves(encoder, batch, members, packed, error)
            else:
                self._give_up(encoder, jobs, error)
            return
        finally:
            self._busy_since = None
        self._metrics.observe("batch_seconds", seconds, model=encoder.model)
        self._metrics.observe("batch_fill", len(members) / max(encoder.most_rows[batch.length], batch.rows), model=encoder.model)
        self._count(encoder, members, n_fed)
        self._enter(members, outputs)
        for job in jobs:
            if job.complete:
                self._step(job)

    def _run_halves(
        self, encoder: Encoder, batch: batching.Batch, members: list[Ticket], packed: list[Packed], error: Exception
    ) -> None:
        """Run a failed batch in smaller ones: they may fit the memory, and one sequence at fault takes no others down."""
        log.warning("a batch of %d x %d tokens failed and is run in halves: %s", batch.rows, batch.length, error)
        self._metrics.add("batches", model=encoder.model, outcome="split")
        if isinstance(error, batching.BatchTooLargeError):
            encoder.too_large(batch)
        for half in batching.halves(batch):
            part, members = members[: len(half.positions)], members[len(half.positions) :]
            if not all(ticket.job.over for ticket in part):
                self._run_batch(encoder, half, part, packed)

    def _give_up(self, encoder: Encoder, jobs: list[Job], error: Exception) -> None:
        log.error("a batch of %d requests failed", len(jobs), exc_info=error)
        self._metrics.add("batches", model=encoder.model, outcome="failed")
        for job in jobs:
            job.fail(_failed("the model failed on this request", error))

    def _enter(self, members: list[Ticket], outputs: NDArray[np.float32]) -> None:
        for ticket, output in zip(members, outputs, strict=True):
            if not ticket.job.over:
                ticket.job.score(ticket.number, output)

    def _step(self, job: Job) -> None:
        if job.over:
            return
        try:
            job.step()
        except Exception as error:
            log.exception("the documents of a request could not be aggregated")
            job.fail(_failed("the model failed on this request", error))

    def _count(self, encoder: Encoder, members: list[Ticket], n_fed: int) -> None:
        n_tokens = sum(len(ticket.packed.ids) for ticket in members)
        self._metrics.add("batches", model=encoder.model, outcome="ok")
        self._metrics.add("tokens", n_tokens, model=encoder.model)
        self._metrics.add("padding", n_fed - n_tokens, model=encoder.model)


def _not_running() -> EngineDeadError:
    return EngineDeadError("the model's thread is not running")


def _failed(what: str, error: Exception) -> EngineError:
    return EngineError(f"{what}: {error}")


def _fail(instance: Instance, error: Exception) -> None:
    if instance.warmed.set_running_or_notify_cancel():
        instance.warmed.set_exception(error)
