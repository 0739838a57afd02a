"""The model's thread as events: the service's own rounds, on a device whose batches take a time, are slow, or fail."""

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from random import Random

import numpy as np
from numpy.typing import NDArray

from benchmarks.simulation.machine import SimulatedMachine
from benchmarks.simulation.ranker import Ids, SimulatedPipeline, logit
from keyblock.runtime.batching import BatchTooLargeError
from service.engine.encoder import Caps, Fed
from service.engine.instance import Graphs, Instance
from service.engine.jobs import Job, Scored
from service.engine.rounds import Rounds, backlog
from service.engine.schedule import Run
from service.engine.score_cache import ScoreCache

LAUNCH_SECONDS = 2e-4


class Graph:
    """A graph of a model: says what the model says, and how long that takes.

    Args:
        device: runs it.
        salt: the model's number.
        states: whether it gives a state, of one number, beside each logit.
    """

    def __init__(self, device: "Device", salt: int, *, states: bool) -> None:
        self.device, self.salt, self._columns = device, salt, 2 if states else 0

    def score(self, ids: NDArray[np.int64], _types: NDArray[np.int64], _mask: NDArray[np.int64]) -> NDArray[np.float32]:
        """A run of the warm-up."""
        self.device.machine.spend(self.device.seconds(ids.size))
        if self.device.warm_ups_fail:
            raise RuntimeError("this graph does not run here")
        if ids.size > self.device.memory:
            raise BatchTooLargeError("no memory")
        return self._shaped(np.zeros(len(ids), np.float32))

    def says(self, sequences: list[Ids]) -> NDArray[np.float32]:
        """The outputs of a batch."""
        return self._shaped(np.array([logit(self.salt, *one.key) for one in sequences], np.float32))

    def _shaped(self, logits: NDArray[np.float32]) -> NDArray[np.float32]:
        return np.repeat(logits[:, None], self._columns, 1) if self._columns else logits


class Device:
    """Stands where `service.engine.engine.Engine` stands.

    Args:
        machine: has the clock.
        random: of the faults.
        rounds: of the model's thread.
        token_seconds: that a token takes.
        caps: of a batch.
        scores: what graphs have said before.

    Attributes:
        slower: by which factor batches take longer.
        failing: how likely a batch fails.
        memory: tokens that a batch may have.
        warm_ups_fail: whether new models cannot be run.
        poison: documents that no batch survives.
        submitted: called with each job, before the rounds have it.
        taken: called when a round has taken its sequences.
        batches: run so far.
    """

    def __init__(
        self, machine: SimulatedMachine, random: Random, rounds: Rounds, token_seconds: float, caps: Caps, scores: ScoreCache
    ) -> None:
        self.machine, self.rounds, self._scores = machine, rounds, scores
        self.slower, self.failing, self.memory, self.warm_ups_fail = 1.0, 0.0, 1 << 30, False
        self.poison: set[int] = set()
        self.batches = 0
        self.submitted: Callable[[Job], None] = lambda _: None
        self.taken: Callable[[], None] = lambda: None
        self._random, self._token_seconds, self._caps = random, token_seconds, caps
        self._batches: Iterator[Run[Job]] = iter(())
        self._asleep = True

    def seconds(self, tokens: int) -> float:
        """That a batch takes now."""
        return (LAUNCH_SECONDS + tokens * self._token_seconds) * self.slower * (0.8 + 0.4 * self._random.random())

    def add(self, name: str, graphs: Graphs, pipeline: SimulatedPipeline) -> Instance:
        """See Engine."""
        instance = Instance(name, graphs, pipeline, self._caps, self.submit, self._scores, self.machine)
        self.rounds.add(instance, first=False)
        self._wake()
        return instance

    def submit(self, job: Job) -> "Future[Scored]":
        """See Engine."""
        self.submitted(job)
        self.rounds.submit(job)
        self._wake()
        return job.future

    def backlog(self, share: float) -> float:
        """See Engine."""
        return backlog(self.rounds.jobs, share)

    def _wake(self) -> None:
        if self._asleep:
            self._asleep = False
            self.machine.soon(self._round)

    def _round(self) -> None:
        if self.rounds.idle:
            self.rounds.forget()
            self._asleep = True
            return
        self.rounds.take_in()
        self._batches = self.rounds.round()
        self._next_batch()
        self.taken()

    def _next_batch(self) -> None:
        run = next(self._batches, None)
        if run is not None:
            self.rounds.runner.begin(run)
            seconds = self.seconds(run.batch.rows * run.batch.length)
            self.machine.at(self.machine.time + seconds, self._ended, run, seconds)
            return
        seconds = self.machine.took(self.rounds.warm_ups.run)[1] if self.rounds.warm_ups else 0.0
        self.machine.at(self.machine.time + seconds, self._round)

    def _ended(self, run: Run[Job], seconds: float) -> None:
        self.batches += 1
        size, encoder = run.batch.rows * run.batch.length, run.tickets[0].task.encoder
        ids: list[Ids] = [job.packed[number].ids for job, number in run.tickets]
        if size > self.memory and run.batch.rows > 1:
            self.rounds.runner.failed(run, BatchTooLargeError("no memory"))
        elif (self.failing and self._random.random() < self.failing) or (
            self.poison and any(one.key[1] in self.poison for one in ids)
        ):
            self.rounds.runner.failed(run, RuntimeError("the graph fails"))
        else:
            encoder.pace.measured(size, seconds)
            self.rounds.runner.scored(run, Fed(encoder.graph.says(ids), None, size), seconds)
        self._next_batch()
