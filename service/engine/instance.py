"""A model on the model's thread: its graphs, how fast they are, and the way from a request's sequences to their logits."""

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

SLACK = 1.5  # of a time that was measured on a less busy machine
MANY = 1024  # sequences that are looked up off the event loop: a millisecond


class Graphs(NamedTuple):
    """A bundle's graphs.

    Attributes:
        ranker: scores sequences.
        selector: scores single blocks for a learned selector; none: the ranker does.
        combine: the learned aggregator, where the ranker gives states.
        ahead: batches that may be under way when the next is decided. None where the device is the cores that decide: a batch
            would be ready no sooner, and newcomers wait longer.
    """

    ranker: batching.Scorer
    selector: batching.Scorer | None = None
    combine: Combine | None = None
    ahead: int = 0


class Turn(NamedTuple):
    """When a job's sequences are to be scored.

    Attributes:
        until: as the machine's clock counts: what is not scored by then is left out; none: all is scored.
        order: document numbers, the first to be scored first where there is an `until`.
        priority: calls of a smaller one go first.
    """

    until: float | None = None
    order: Sequence[int] | None = None
    priority: int = 0


ANY_TURN = Turn()


class Instance:
    """A model's graphs, between the event loop, which asks for scores, and the model's thread, which runs them.

    Args:
        name: the model's.
        graphs: the bundle's.
        pipeline: the bundle's: says how long a sequence may be, what fills a row, and what becomes of a document's sequences.
        caps: of a batch.
        submit: hands a job to the model's thread; raises EngineDeadError.
        scores: what the graphs have said before.
        machine: whose clock it uses, and where it waits.

    Attributes:
        pace: of the model, a token.
        combine_pace: of the aggregation, a document.
        combines: whether what is left of the warm-up runs the aggregator alone, as the model's thread does.
        warmed: done once every shape was run; or failed, with what a graph raised. To cancel it ends the warm-up.
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
        of_model = name, pipeline.tokenizer, self.pace, machine.now, graphs.ahead
        self.ranker = Encoder(graphs.ranker, *of_model)
        own = graphs.selector is not None
        self.selector = Encoder(graphs.selector, *of_model) if graphs.selector else self.ranker
        self.encoders = [self.selector, self.ranker] if own else [self.ranker]  # the ranker last
        self._combine = graphs.combine
        self._pipeline = pipeline
        self._caps = caps
        self._submit = submit
        self._scores = scores

    async def score(self, documents: Sequence[Sequence[Packed]], turn: Turn = ANY_TURN, *, marks: bool = False) -> Scored:
        """Score documents, each given by its sequences: see Scored. Cancelling the await drops those that wait.

        With `marks` also mark their tokens, where the graph does.

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
        """Score single blocks for a learned selector, each for itself; else as `score`. In a hurry, in the order given."""
        if not packed:
            return Scored(np.zeros(0, np.float32), 0.0, 0.0)
        urgency = None if turn.until is None else range(len(packed))
        job = Job(packed, self.selector, None, urgency, turn.priority, turn.until, clock=self._machine.now)
        return await self._scored(job, turn.until)

    async def _scored(self, job: Job, until: float | None) -> Scored:
        """The job's outcome, without the thread where all of it is known; what is new is kept."""
        many = len(job.packed) > MANY
        missed = await self._machine.run(None, self._scores.recall, job) if many else self._scores.recall(job)
        if job.complete and not job.learned:
            job.step()
            return job.future.result()
        try:
            return await self._done(job, until)
        finally:
            self._scores.keep(job, missed)

    async def _done(self, job: Job, until: float | None) -> Scored:
        """The job's outcome, or what is known of it when time is up: then it is dropped."""
        future = self._submit(job)
        awaited = self._machine.awaited(future)
        combined = job.n_documents if job.learned else 0
        try:
            if until is None:
                await awaited.by(None)
                return future.result()
            in_time = await awaited.by(until - SLACK * self.combine_pace.estimate(combined))
            in_time = in_time or (job.complete and await awaited.by(until))  # all is scored, and being combined
            if in_time and not future.cancelled():
                return future.result()
        finally:
            future.cancel()
        if not job.learned:
            return job.known()
        return job.unscored() if job.complete else await self._machine.run(None, job.known)

    def first_runs(self) -> Iterator[None]:
        """Run every graph in every shape that it may meet; yields after each run, and is warm at the end."""
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
    """Numbers of the sequences of these documents, in their order; `counts` of all documents' sequences."""
    ends = np.cumsum(counts)
    return [number for document in documents for number in range(ends[document] - counts[document], ends[document])]
