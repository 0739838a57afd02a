"""A model's graphs behind the queue: the way from a request's sequences to their logits, as far as there is time."""

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.aggregation import Combine, PassageAggregator
from keyblock.bundle import Bundle, Manifest
from keyblock.packing import Packed, weights_of
from keyblock.ranking.order import Candidate
from keyblock.runtime import batching
from keyblock.runtime.providers import Choice
from service.call import Call
from service.pace import Pace, SecondsAhead, ahead_in_turns, nothing_ahead
from service.queue.batch import Encoder
from service.queue.job import Aggregation, Job, Scored, shapes, unscored
from service.queue.worker import Worker
from service.settings import Settings

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


class Priority(NamedTuple):
    """When to score a job's sequences.

    Attributes:
        until: deadline, in seconds of `time.perf_counter`: sequences not scored by then are left out. None: all are scored.
        order: document numbers, the most urgent first; used where there is an `until`.
        level: calls of a smaller one go first.
    """

    until: float | None = None
    order: Sequence[int] | None = None
    level: int = 0


USUAL = Priority()


class Scorer(ABC):
    """Turns a model's candidates into logits. By default it accepts requests at once, and nothing waits for it.

    Attributes:
        stage: name of the scoring time in metrics, traces and answers.
        reads_texts: whether it needs the documents' texts, and not only their tokens.
        marks: whether it can mark the tokens that answer.
        fell_back: whether no GPU was found although this build could use one.
        pace: seconds per token.
        warmed: done once the scorer accepts requests, or failed; cancelling it gives the model up.
    """

    stage = "model"
    reads_texts = marks = fell_back = False

    def __init__(self) -> None:
        self.pace = Pace()
        self.warmed: Future[None] = Future()
        self.warmed.set_result(None)

    def backlog(self) -> SecondsAhead:
        """The work that waits for the scorer at this moment."""
        return nothing_ahead

    @abstractmethod
    async def score(self, call: Call, candidates: Sequence[Candidate], priority: Priority = USUAL) -> Scored:
        """The candidates' logits. Raises ModelError or ModelDeadError."""

    async def choose(self, packed: Sequence[Packed], priority: Priority = USUAL) -> Scored:
        """Logits of single blocks, for a learned selector. Raises ModelError or ModelDeadError."""
        raise TypeError(f"{type(self).__name__} chooses no blocks")  # its pipelines have no learned selector

    @abstractmethod
    def labels(self) -> dict[str, str]:
        """The precision and the provider, for metrics."""

    @abstractmethod
    def describe(self, settings: Settings) -> dict[str, Any]:
        """The precision, the provider and more, for /info."""

    async def close(self) -> None:
        """Release everything that the scorer holds beside the queue."""
        return


class GraphScorer(Scorer):
    """A bundle's graphs, between the event loop, which requests scores, and the model's thread, which runs the graphs.

    Args:
        worker: owns the model's thread; it warms the graphs up from now on.
        bundle: gives the name, the longest sequence, the tokenizer and the aggregator.
        graphs: the bundle's graphs.
        choice: their device and arithmetic, and the reasons.

    Attributes:
        combine_pace: seconds per document of the aggregation.

    Raises ModelDeadError.
    """

    def __init__(self, worker: Worker, bundle: Bundle, graphs: Graphs, choice: Choice) -> None:
        self.pace, self.combine_pace = Pace(), Pace()
        self.marks, self.fell_back = bundle.graph.marks, choice.fell_back
        self._worker, self._combine, self._choice = worker, graphs.combine, choice
        self._manifest, self._pipeline = bundle.manifest, bundle.pipeline
        shared = bundle.manifest.name, bundle.pipeline.tokenizer, self.pace, graphs.ahead
        self.ranker = Encoder(graphs.ranker, *shared)
        self.selector = Encoder(graphs.selector, *shared) if graphs.selector else self.ranker
        encoders = [self.ranker] if graphs.selector is None else [self.selector, self.ranker]  # the ranker last
        self.warmed = worker.warm_up(bundle.manifest.name, encoders, self._first_runs(encoders))

    def backlog(self) -> SecondsAhead:
        """See Scorer: the backlog of all models."""
        return ahead_in_turns(self._worker.waiting())

    async def score(self, call: Call, candidates: Sequence[Candidate], priority: Priority = USUAL) -> Scored:
        """See Scorer."""
        marks = call.asked.reads_texts and self.marks
        return await self.score_documents([candidate.sequences for candidate in candidates], priority, marks=marks)

    async def score_documents(
        self, documents: Sequence[Sequence[Packed]], priority: Priority = USUAL, *, marks: bool = False
    ) -> Scored:
        """Score documents, each given by its sequences; see Scored. Cancelling the await drops the sequences that still wait.

        With `marks` also mark the documents' tokens, if the graph can.

        Raises ModelError or ModelDeadError.
        """
        packed = list(chain.from_iterable(documents))
        if not packed:
            return unscored(len(documents))
        counts = np.fromiter(map(len, documents), np.intp, len(documents))
        how = self._pipeline.aggregator, counts, self._combine, self._worker.caps.tokens
        waiting = Aggregation(*how, self.combine_pace, weights_of(packed))
        until, order, level = priority
        urgency = None if until is None or order is None else sequences_of(order, counts)
        scored = await self._scored(Job(packed, self.ranker, waiting, urgency, level, until, marks), until)
        return scored._replace(passages=None) if self._pipeline.aggregator.joint else scored

    async def choose(self, packed: Sequence[Packed], priority: Priority = USUAL) -> Scored:
        """See Scorer. With a deadline, the first blocks are the most urgent."""
        if not packed:
            return unscored(0)
        urgency = None if priority.until is None else range(len(packed))
        job = Job(packed, self.selector, None, urgency, priority.level, priority.until)
        return await self._scored(job, priority.until)

    def labels(self) -> dict[str, str]:
        """See Scorer."""
        return {"precision": self._choice.precision.value, "provider": self._choice.provider.value}

    def describe(self, settings: Settings) -> dict[str, Any]:
        """See Scorer."""
        choice, manifest = self._choice, self._manifest
        return {
            "precision": choice.precision.value,
            "provider": {
                "asked": settings.provider.value,
                "chosen": choice.provider.value,
                "arithmetic": choice.precision.value,
                "why": choice.why,
            },
            "graphs": _describe_graphs(manifest, choice.precision.value),
            "variants": {name: variant.quality for name, variant in manifest.variants.items()},
        }

    async def _scored(self, job: Job, until: float | None) -> Scored:
        """The job's outcome; the model's thread is not used if the cache holds all of it. New scores are added to the cache."""
        many = len(job.packed) > MANY_SEQUENCES
        scores = self._worker.scores
        missed = await asyncio.to_thread(scores.recall, job) if many else scores.recall(job)
        if job.complete and not job.learned:
            job.step()
            return job.future.result()
        try:
            return await self._done(job, until)
        finally:
            scores.keep(job, missed)

    async def _done(self, job: Job, until: float | None) -> Scored:
        """The job's outcome. At the deadline the job is dropped, and the outcome is what is known by then."""
        future = self._worker.submit(job)
        waited_for = asyncio.wrap_future(future)
        combined = job.n_documents if job.learned else 0
        try:
            in_time = await _wait(waited_for, None if until is None else until - SLACK * self.combine_pace.estimate(combined))
            if not in_time and job.complete:  # all sequences are scored, and the aggregator runs
                in_time = await _wait(waited_for, until)
            if until is None or (in_time and not future.cancelled()):
                return future.result()
        finally:
            future.cancel()
        if not job.learned:
            return job.known()
        return job.unscored() if job.complete else await asyncio.to_thread(job.known)

    def _first_runs(self, encoders: Sequence[Encoder]) -> Iterator[None]:
        """Run every graph in every shape that it may meet; the graphs are warm at the end. Yields after each run."""
        longest, caps = self._pipeline.config.packing.budget_range[1], self._worker.caps
        for encoder in encoders:
            yield from encoder.first_runs(longest, caps, partial(self._worker.do, encoder))
        aggregator = self._pipeline.aggregator
        if self._combine is not None and isinstance(aggregator, PassageAggregator):
            one = np.ones((1, batching.LENGTHS[0]), np.int64)
            hidden = self._worker.do(self.ranker, lambda: self.ranker.graph.score(one, one, one)).shape[1] - 1
            for shape in shapes(aggregator.passages, caps.tokens):
                self._combine(np.zeros((*shape, hidden), np.float32), np.ones(shape, np.bool_))
                yield
        for encoder in encoders:
            encoder.warm = True


async def _wait(future: "asyncio.Future[Any]", until: float | None) -> bool:
    """Wait until the future is done or the deadline passes; None: no deadline. Returns whether it is done."""
    await asyncio.wait([future], timeout=None if until is None else max(until - time.perf_counter(), 0.0))
    if future.done() and not future.cancelled():
        future.exception()  # marks it as seen, to stop asyncio's warning: callers read the other thread's future
    return future.done()


def sequences_of(documents: Sequence[int], counts: NDArray[np.intp]) -> list[int]:
    """Numbers of the sequences of these documents, in their order; `counts` holds the sequences of every document."""
    ends = np.cumsum(counts)
    return [number for document in documents for number in range(ends[document] - counts[document], ends[document])]


def _describe_graphs(manifest: Manifest, precision: str) -> dict[str, dict[str, Any]]:
    """The kind and the precision of each graph that runs. A selector is only listed if it is a graph of its own."""
    served = manifest.graphs_for(precision)
    graphs: dict[str, dict[str, Any]] = {} if served.graph is None else {"ranker": {"precision": served.graph.precision}}
    if (selector := served.selector_graph) is not None:
        graphs["selector"] = {"precision": selector.precision}
    if (aggregator := manifest.aggregator) is not None:
        graphs["aggregator"] = {"precision": aggregator.precision, "kind": aggregator.kind}
    return graphs
