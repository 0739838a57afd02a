"""A model on the model's thread: its graphs, their speed, and the way from a request's sequences to their logits."""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.aggregation import Combine, PassageAggregator
from keyblock.packing import Packed, weights_of
from keyblock.pipeline import Pipeline
from keyblock.runtime import batching
from service.engine import aggregation
from service.engine.aggregation import Aggregation
from service.engine.encoder import Caps, Encoder
from service.engine.jobs import Job, Scored
from service.engine.score_cache import ScoreCache
from service.machine import ASYNCIO, Machine
from service.pace import Pace

SLACK = 1.5  # factor on a measured time: the machine may be busier than when the time was taken
MANY_SEQUENCES = 1024  # to look up this many sequences takes a millisecond; from here on it is done off the event loop


class Graphs(NamedTuple):
    """A bundle's graphs.

    Attributes:
        ranker: scores sequences.
        selector: scores single blocks for a learned selector; None: the ranker does.
        combine: the learned aggregator, where the ranker gives states.
        ahead: batches that may be under way when the next is decided. 0 where the device is the CPU that also decides: a batch
            would be ready no sooner, and new requests would wait longer.
    """

    ranker: batching.Scorer
    selector: batching.Scorer | None = None
    combine: Combine | None = None
    ahead: int = 0


class Turn(NamedTuple):
    """When to score a job's sequences.

    Attributes:
        until: deadline, in seconds of the machine's clock: sequences not scored by then are left out. None: all are scored.
        order: document numbers, the most urgent first; used where there is an `until`.
        priority: calls of a smaller one go first.
    """

    until: float | None = None
    order: Sequence[int] | None = None
    priority: int = 0


ANY_TURN = Turn()


class Instance:
    """A model's graphs, between the event loop, which requests scores, and the model's thread, which runs the graphs.

    Args:
        name: the model's name.
        graphs: the bundle's graphs.
        pipeline: the bundle's pipeline: gives the longest sequence, the tokenizer and the aggregator.
        caps: the limits of a batch.
        submit: hands a job to the model's thread; raises EngineDeadError.
        scores: the score cache.
        machine: gives the time, and threads to wait on.

    Attributes:
        pace: seconds per token of the model.
        combine_pace: seconds per document of the aggregation.
        combines: whether the rest of the warm-up runs only the aggregator, which belongs on the model's thread.
        warmed: done once every shape was run, or failed with the error of a graph. Cancelling it ends the warm-up.
    """

    def __init__(
        self,
        name: str,
        graphs: Graphs,
        pipeline: Pipeline,
        caps: Caps,
        submit: Callable[[Job], "Future[Scored]"],
        scores: ScoreCache,
        machine: Machine = ASYNCIO,
    ) -> None:
        self.name = name
        self.pace, self.combine_pace = Pace(), Pace()
        self.warmed: Future[None] = Future()
        self.combines = False
        self._machine = machine
        shared = name, pipeline.tokenizer, self.pace, machine.now, graphs.ahead
        self.ranker = Encoder(graphs.ranker, *shared)
        own = graphs.selector is not None
        self.selector = Encoder(graphs.selector, *shared) if graphs.selector else self.ranker
        self.encoders = [self.selector, self.ranker] if own else [self.ranker]  # the ranker last
        self._combine = graphs.combine
        self._pipeline = pipeline
        self._caps = caps
        self._submit = submit
        self._scores = scores

    async def score(self, documents: Sequence[Sequence[Packed]], turn: Turn = ANY_TURN, *, marks: bool = False) -> Scored:
        """Score documents, each given by its sequences; see Scored. Cancelling the await drops the sequences that still wait.

        With `marks` also mark the documents' tokens, if the graph can.

        Raises EngineError or EngineDeadError.
        """
        packed = list(chain.from_iterable(documents))
        if not packed:
            return Scored(np.full(len(documents), -np.inf, np.float32), 0.0, 0.0)
        counts = np.fromiter(map(len, documents), np.intp, len(documents))
        how = self._pipeline.aggregator, counts, self._combine, self._caps.tokens
        waiting = Aggregation(*how, self.combine_pace, weights_of(packed), self._machine.now)
        urgency = None if turn.until is None or turn.order is None else _sequences_of(turn.order, counts)
        job = Job(packed, self.ranker, waiting, urgency, turn.priority, turn.until, marks, self._machine.now)
        scored = await self._scored(job, turn.until)
        return scored._replace(passages=None) if self._pipeline.aggregator.joint else scored

    async def choose(self, packed: Sequence[Packed], turn: Turn = ANY_TURN) -> Scored:
        """Score single blocks for a learned selector, like `score`. With a deadline, the first blocks are the most urgent."""
        if not packed:
            return Scored(np.zeros(0, np.float32), 0.0, 0.0)
        urgency = None if turn.until is None else range(len(packed))
        job = Job(packed, self.selector, None, urgency, turn.priority, turn.until, clock=self._machine.now)
        return await self._scored(job, turn.until)

    async def _scored(self, job: Job, until: float | None) -> Scored:
        """The job's outcome; the model's thread is not used if the cache holds all of it. New scores are added to the cache."""
        many = len(job.packed) > MANY_SEQUENCES
        missed = await self._machine.run(None, self._scores.recall, job) if many else self._scores.recall(job)
        if job.complete and not job.learned:
            job.step()
            return job.future.result()
        try:
            return await self._done(job, until)
        finally:
            self._scores.keep(job, missed)

    async def _done(self, job: Job, until: float | None) -> Scored:
        """The job's outcome. At the deadline the job is dropped, and the outcome is what is known by then."""
        future = self._submit(job)
        awaited = self._machine.awaited(future)
        combined = job.n_documents if job.learned else 0
        try:
            if until is None:
                await awaited.wait_until(None)
                return future.result()
            in_time = await awaited.wait_until(until - SLACK * self.combine_pace.estimate(combined))
            in_time = in_time or (
                job.complete and await awaited.wait_until(until)
            )  # all sequences are scored, and the aggregator runs
            if in_time and not future.cancelled():
                return future.result()
        finally:
            future.cancel()
        if not job.learned:
            return job.known()
        return job.unscored() if job.complete else await self._machine.run(None, job.known)

    def first_runs(self) -> Iterator[None]:
        """Run every graph in every shape that it may meet. Yields after each run; the graphs are warm at the end."""
        longest = self._pipeline.config.packing.budget_range[1]
        for encoder in self.encoders:
            yield from encoder.first_runs(longest, self._caps)
        aggregator = self._pipeline.aggregator
        if self._combine is not None and isinstance(aggregator, PassageAggregator):
            one = np.ones((1, batching.LENGTHS[0]), np.int64)
            hidden = self.ranker.graph.score(one, one, one).shape[1] - 1
            self.combines = True
            yield
            for shape in aggregation.shapes(aggregator.passages, self._caps.tokens):
                self._combine(np.zeros((*shape, hidden), np.float32), np.ones(shape, np.bool_))
                yield
        for encoder in self.encoders:
            encoder.warm = True


def _sequences_of(documents: Sequence[int], counts: NDArray[np.intp]) -> list[int]:
    """Numbers of the sequences of these documents, in their order; `counts` holds the sequences of every document."""
    ends = np.cumsum(counts)
    return [number for document in documents for number in range(ends[document] - counts[document], ends[document])]
