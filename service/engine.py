"""The model's thread: it alone runs a bundle's graphs, on batches that sequences of concurrent requests share.

Work is done in rounds. A round takes sequences from every waiting job in turn, up to a few batches' worth of tokens, so a small
request waits for a round at most, however large the one before it, and what is nearly done has more of the turns; then the round is
sorted by graph and length, batched and run. A
learned aggregator takes a part of a request's documents as soon as the last of their sequences is scored, then another each round.
"""

import asyncio
import logging
import math
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from itertools import chain
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.aggregation import Combine, PassageAggregator
from keyblock.packing import Packed
from keyblock.pipeline import Pipeline
from keyblock.runtime import batching
from service import aggregation
from service.aggregation import Aggregation
from service.jobs import Job, Scored, Ticket
from service.metrics import Metrics
from service.pace import Pace
from service.warmup import first_runs

log = logging.getLogger(__name__)

ROUND_BATCHES = 2  # full batches in a round: more sorts better, fewer lets newcomers in sooner
FAVOUR = 3  # sequences a turn of the request with the least left to do


class EngineError(RuntimeError):
    """The batch that held a request's sequences failed; the engine goes on."""


class EngineDeadError(RuntimeError):
    """The model's thread is not running: nothing is going to be scored."""


class Graphs(NamedTuple):
    """A bundle's graphs at work; used by the model's thread only.

    Attributes:
        ranker: scores sequences.
        selector: scores single blocks for a learned selector; none: the ranker does.
        combine: the learned aggregator, where the ranker gives states.
    """

    ranker: batching.Scorer
    selector: batching.Scorer | None = None
    combine: Combine | None = None

    @property
    def encoders(self) -> list[batching.Scorer]:
        """The graphs that read token ids, the ranker last."""
        return [self.ranker] if self.selector is None else [self.selector, self.ranker]


class Caps(NamedTuple):
    """What bounds a batch.

    Attributes:
        tokens: padding included; also the [CLS] states that are combined at once.
        seconds: measured in the warm-up; a single sequence may take longer.
        hung_after: seconds after which a batch is not expected to end any more.
    """

    tokens: int
    seconds: float
    hung_after: float = 60.0


class Turn(NamedTuple):
    """When a job's sequences are to be scored.

    Attributes:
        until: as `time.perf_counter` counts: what is not scored by then is left out; none: all is scored.
        order: document numbers, the first to be scored first where there is an `until`.
        priority: calls of a smaller one go first.
    """

    until: float | None = None
    order: Sequence[int] | None = None
    priority: int = 0


ANY_TURN = Turn()


class Engine:
    """Owns the graphs and their thread.

    Attributes:
        pace: of the model, a token.

    Args:
        graphs: the bundle's.
        pipeline: the bundle's: says how long a sequence may be (every shape up to that is run once before the engine is ready),
            what fills a row, and what becomes of a document's sequences.
        caps: of a batch.
        metrics: counts batches, tokens and padding.
    """

    def __init__(self, graphs: Graphs, pipeline: Pipeline, caps: Caps, metrics: Metrics) -> None:
        self._graphs = graphs
        self._pipeline = pipeline
        self._pad_id = pipeline.tokenizer.pad_id
        self._document_type = pipeline.tokenizer.template.document_type
        self._caps = caps
        self._most_rows: dict[batching.Scorer, dict[int, int]] = {}  # by length; found out in the warm-up
        self._batch_tokens = caps.tokens  # of the largest batch
        self._busy_since: float | None = None
        self._metrics = metrics
        self.pace = Pace()
        self._jobs: list[Job] = []
        self._changed = threading.Condition()
        self._closing = False
        self._warm = threading.Event()
        self._thread = threading.Thread(target=self._run, name="model", daemon=True)

    def start(self) -> None:
        """Start the thread; it warms up first, and jobs handed in meanwhile wait."""
        self._thread.start()

    def close(self) -> None:
        """Stop after the round in hand; jobs still waiting fail."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

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
        """Tokens that wait for the model, padding not counted; of each job at most `share`: turns are taken."""
        return sum(min(job.tokens_waiting, share) for job in list(self._jobs))

    async def score(self, documents: Sequence[Sequence[Packed]], turn: Turn = ANY_TURN) -> Scored:
        """Score documents, each given by its sequences: see Scored. Cancelling the await drops those that wait.

        Raises EngineError or EngineDeadError.
        """
        packed = list(chain.from_iterable(documents))
        if not packed:
            return Scored(np.full(len(documents), -np.inf, np.float32), 0.0, 0.0)
        counts = np.fromiter(map(len, documents), np.intp, len(documents))
        waiting = Aggregation(self._pipeline.aggregator, counts, self._graphs.combine, self._caps.tokens)
        urgency = None if turn.until is None or turn.order is None else _sequences_of(turn.order, counts)
        return await self._done(Job(packed, self._graphs.ranker, waiting, urgency, turn.priority), turn.until)

    async def choose(self, packed: Sequence[Packed], turn: Turn = ANY_TURN) -> Scored:
        """Score single blocks for a learned selector, each for itself; else as `score`. In a hurry, in the order given."""
        if not packed:
            return Scored(np.zeros(0, np.float32), 0.0, 0.0)
        urgency = None if turn.until is None else range(len(packed))
        return await self._done(Job(packed, self._graphs.selector or self._graphs.ranker, None, urgency, turn.priority), turn.until)

    async def _done(self, job: Job, until: float | None) -> Scored:
        """The job's outcome, or what is known of it when time is up: then it is dropped."""
        future = asyncio.wrap_future(self.submit(job))
        try:
            await asyncio.wait([future], timeout=None if until is None else max(until - time.perf_counter(), 0.0))
            if future.done():
                return future.result()
        finally:
            future.cancel()
        return await asyncio.to_thread(job.known) if self._pipeline.aggregator.learned else job.known()

    def submit(self, job: Job) -> Future[Scored]:
        """Hand in a job. Raises EngineDeadError."""
        with self._changed:
            if self._closing or not self.alive:
                raise EngineDeadError("the model's thread is not running")
            self._jobs.append(job)
            self._changed.notify()
        return job.future

    def _run(self) -> None:
        try:
            self._warm_up()
            while (jobs := self._wait()) is not None:
                self._run_round(jobs)
        except BaseException:
            log.critical("the model's thread died", exc_info=True)
        finally:
            with self._changed:
                self._closing = True
                stranded, self._jobs = self._jobs, []
            for job in stranded:
                job.fail(EngineDeadError("the model's thread stopped before this request was scored"))

    def _warm_up(self) -> None:
        started = time.perf_counter()
        for _ in self._first_runs():
            if self._closing:
                return
        self._batch_tokens = max(rows * length for most in self._most_rows.values() for length, rows in most.items())
        self._warm.set()
        self._metrics.set("ready", 1)
        log.info("warmed up in %.1f s; a batch has up to %d tokens", time.perf_counter() - started, self._batch_tokens)

    def _first_runs(self) -> Iterator[None]:
        """Run every graph in every shape that it may meet."""
        longest = self._pipeline.config.packing.budget_range[1]
        for graph in self._graphs.encoders:
            most = self._most_rows[graph] = {}
            for rows, length, seconds in first_runs(graph, batching.capped(longest, self._caps.tokens), self._caps.seconds):
                most[length] = rows
                self.pace.measured(rows * length, seconds)
                yield
        aggregator = self._pipeline.aggregator
        if self._graphs.combine is not None and isinstance(aggregator, PassageAggregator):
            one = np.ones((1, batching.LENGTHS[0]), np.int64)
            hidden = self._graphs.ranker.score(one, one, one).shape[1] - 1
            for shape in aggregation.shapes(aggregator.passages, self._caps.tokens):
                self._graphs.combine(np.zeros((*shape, hidden), np.float32), np.ones(shape, np.bool_))
                yield

    def _wait(self) -> list[Job] | None:
        """Wait for jobs; None when closing."""
        with self._changed:
            self._forget()
            while not self._jobs and not self._closing:
                self._changed.wait()
                self._forget()
            return None if self._closing else list(self._jobs)

    def _forget(self) -> None:
        self._jobs = [job for job in self._jobs if not job.over]
        self._metrics.set("queued", sum(job.n_waiting for job in self._jobs))

    def _run_round(self, jobs: list[Job]) -> None:
        for job in jobs:
            if job.complete:  # of more documents than a part has
                self._step(job)
        by_graph: dict[batching.Scorer, list[Ticket]] = {}
        for ticket in self._take(jobs):
            by_graph.setdefault(ticket.job.graph, []).append(ticket)
        for graph, tickets in by_graph.items():
            packed = [ticket.packed for ticket in tickets]
            for batch in batching.plan([len(p.ids) for p in packed], self._most_rows[graph]):
                members = [tickets[position] for position in batch.positions]
                if not all(ticket.job.over for ticket in members):
                    self._run_batch(graph, batch, members, packed)

    def _take(self, jobs: list[Job]) -> list[Ticket]:
        """Sequences from the jobs of the smallest priority in turn, then from the others, until the round is full."""
        room = ROUND_BATCHES * self._batch_tokens
        tickets: list[Ticket] = []
        for priority in sorted({job.priority for job in jobs}):
            for job in _turns([job for job in jobs if job.priority == priority]):
                if room <= 0:
                    return tickets
                tickets.append(Ticket(job, job.take()))
                room -= batching.bucket(len(tickets[-1].packed.ids))
        return tickets

    def _run_batch(self, graph: batching.Scorer, batch: batching.Batch, members: list[Ticket], packed: list[Packed]) -> None:
        jobs = list(dict.fromkeys(ticket.job for ticket in members))
        for job in jobs:
            job.begin()
        try:
            ids, types, mask = batching.fill(batch, packed, self._pad_id, self._document_type)
            self._busy_since = started = time.perf_counter()
            outputs = graph.score(ids, types, mask)[: len(members)]
            self.pace.measured(mask.size, time.perf_counter() - started)
        except Exception as error:
            if len(members) > 1 and (len(jobs) > 1 or isinstance(error, batching.BatchTooLargeError)):
                self._run_halves(graph, batch, members, packed, error)
            else:
                self._give_up(jobs, error)
            return
        finally:
            self._busy_since = None
        self._count(members, mask.size)
        self._enter(members, outputs)
        for job in jobs:
            if job.complete:
                self._step(job)

    def _run_halves(
        self, graph: batching.Scorer, batch: batching.Batch, members: list[Ticket], packed: list[Packed], error: Exception
    ) -> None:
        """Run a failed batch in smaller ones: they may fit the memory, and one sequence at fault takes no others down."""
        log.warning("a batch of %d x %d tokens failed and is run in halves: %s", batch.rows, batch.length, error)
        self._metrics.add("batches", outcome="split")
        for half in batching.halves(batch):
            part, members = members[: len(half.positions)], members[len(half.positions) :]
            if not all(ticket.job.over for ticket in part):
                self._run_batch(graph, half, part, packed)

    def _give_up(self, jobs: list[Job], error: Exception) -> None:
        log.error("a batch of %d requests failed", len(jobs), exc_info=error)
        self._metrics.add("batches", outcome="failed")
        for job in jobs:
            job.fail(_failed(error))

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
            job.fail(_failed(error))

    def _count(self, members: list[Ticket], n_fed: int) -> None:
        n_tokens = sum(len(ticket.packed.ids) for ticket in members)
        self._metrics.add("batches", outcome="ok")
        self._metrics.add("tokens", n_tokens)
        self._metrics.add("padding", n_fed - n_tokens)


def _turns(jobs: list[Job]) -> Iterator[Job]:
    """Jobs with sequences waiting, each once a turn, the one with the least left to do more often: it is soon out of the way."""
    while jobs := sorted((job for job in jobs if job.n_waiting), key=lambda job: job.tokens_waiting):
        first, *others = jobs
        for _ in range(min(FAVOUR, first.n_waiting) if others else 1):
            yield first
        yield from others


def _sequences_of(documents: Sequence[int], counts: NDArray[np.intp]) -> list[int]:
    """Numbers of the sequences of these documents, in their order; `counts` of all documents' sequences."""
    ends = np.cumsum(counts)
    return [number for document in documents for number in range(ends[document] - counts[document], ends[document])]


def _failed(error: Exception) -> EngineError:
    return EngineError(f"the model failed on this request: {error}")
