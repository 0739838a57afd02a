"""The model's thread: it alone runs the graphs of all models, on batches that sequences of concurrent requests share.

The schedule decides what runs next, and the runner runs it. Where a GPU computes, a second thread waits for it; meanwhile the
model's thread prepares the next batch and hands out the scores of the last one. A learned aggregator takes a part of a request's
documents as soon as the last of their sequences is scored, then another part each round. A model that is added while others serve
is warmed up between the rounds, one run at a time.
"""

import logging
import math
import threading
from collections.abc import Iterable
from concurrent.futures import Future
from contextlib import nullcontext

from keyblock.pipeline import Pipeline
from service.engine.device import Device
from service.engine.encoder import Caps
from service.engine.errors import EngineDeadError
from service.engine.instance import Graphs, Instance
from service.engine.jobs import Job, Scored
from service.engine.rounds import Rounds, backlog
from service.engine.schedule import Run
from service.engine.score_cache import ScoreCache
from service.machine import ASYNCIO, Machine
from service.telemetry.metrics import Metrics

log = logging.getLogger(__name__)

CLOSE_SECONDS = 5  # to finish the round in hand when the service stops; a device that hangs is not waited for


class Engine:
    """Owns the threads.

    Args:
        caps: the limits of a batch.
        metrics: counts batches, tokens and padding.
        score_cache_bytes: the capacity of the score cache; 0 keeps nothing.
        machine: makes the threads and gives the time.

    Attributes:
        scores: the score cache.
        rounds: the work of the model's thread; only that thread uses it, except for tests and simulations that watch.
    """

    def __init__(self, caps: Caps, metrics: Metrics, score_cache_bytes: int = 0, machine: Machine = ASYNCIO) -> None:
        self.scores = ScoreCache(score_cache_bytes, metrics)
        self._caps = caps
        self._metrics, self._machine = metrics, machine
        self._changed = machine.condition()
        self._device = Device(machine, self._changed)
        self.rounds = Rounds(metrics, self._device, machine.now)
        self._closing = False
        self._warm = threading.Event()
        self._thread = machine.thread(self._run, "model")

    def add(self, name: str, graphs: Graphs, pipeline: Pipeline) -> Instance:
        """Add a model and warm it up; jobs for it wait until it is warm. Raises EngineDeadError.

        If the warm-up of a model fails that was added before the start, the thread ends. If that of a later model fails, only
        `Instance.warmed` fails. The engine keeps no reference to a model but through its jobs.
        """
        instance = Instance(name, graphs, pipeline, self._caps, self.submit, self.scores, self._machine)
        with self._changed:
            if self._closing:
                raise _not_running()
            self.rounds.add(instance, at_start=self._thread.ident is None)
            self._changed.notify()
        return instance

    def start(self) -> None:
        """Start the thread. It warms up first, and jobs wait meanwhile. Without a model the engine is ready at once."""
        if not self.rounds.warm_ups:
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
        since = self.rounds.runner.busy_since
        return since is not None and self._machine.now() - since > self._caps.hung_after

    @property
    def ready(self) -> bool:
        """Whether the engine is warmed up and runs."""
        return self._warm.is_set() and self.alive

    def backlog(self, share: float = math.inf) -> float:
        """Seconds of work that wait for the models; at most `share` of each job is counted, since jobs take turns."""
        return backlog(self._jobs(), share)

    def waiting(self) -> list[float]:
        """Seconds of waiting work of each job."""
        return [job.seconds_waiting for job in self._jobs()]

    def measure(self, models: Iterable[str]) -> None:
        """Set the gauges of the work that waits for these models."""
        waiting = [job for job in self._jobs() if job.n_waiting and not job.finished]
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
            self.rounds.submit(job)
            self._changed.notify()
        return job.future

    def _jobs(self) -> list[Job]:
        with self._changed:
            return self.rounds.jobs

    def _run(self) -> None:
        try:
            while self._run_round():
                pass
        except BaseException:
            log.critical("the model's thread died", exc_info=True)
        finally:
            with self._changed:
                self._closing = True
            for job in self._jobs():
                job.fail(EngineDeadError("the model's thread stopped before this request was scored"))
            self.rounds.warm_ups.stop(_not_running())
            self._device.close()

    def _run_round(self) -> bool:
        """Run a round, then one run of a warm-up. False when closing. Keeps no reference to a job or model afterwards."""
        self._wait()
        if self._closing:
            self._run_all(self.rounds.rest())
            return False
        self._run_all(self.rounds.round())
        if self.rounds.warm_ups:
            self._run_all(self.rounds.rest())
            self._warm_up()
        return True

    def _run_all(self, batches: Iterable[Run[Job]]) -> None:
        for batch in batches:
            self.rounds.runner.run(batch)

    def _wait(self) -> None:
        """Wait until there is something to do, then accept the new jobs."""
        with self._changed:
            while self.rounds.idle and not self._closing:
                self.rounds.forget()
                self._changed.wait()
            self.rounds.take_in()

    def _warm_up(self) -> None:
        """Make one warm-up run of the first model that is not warm; ready once all models that were added before the start are."""
        warm_ups = self.rounds.warm_ups
        # before the start, a run may take minutes, since some providers compile: it does not count as a device that hangs
        with nullcontext() if warm_ups.at_start else self.rounds.runner.busy():
            if warm_ups.on_device:
                self._device.do(warm_ups.run)  # providers keep memory for each thread that runs their graphs
            else:
                warm_ups.run()
        if not (warm_ups.at_start or self._warm.is_set()):
            self._now_ready()

    def _now_ready(self) -> None:
        self._warm.set()
        self._metrics.set("ready", 1)


def _not_running() -> EngineDeadError:
    return EngineDeadError("the model's thread is not running")
