"""The model's thread: it alone runs the session, on batches that sequences of concurrent requests share.

Work is done in rounds. A round takes sequences from every waiting job in turn, up to a few batches' worth of tokens, so a small
request waits for a round at most, however large the one before it; then it is sorted by length, batched and run.
"""

import asyncio
import logging
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.packing import Packed
from keyblock.runtime import batching
from keyblock.tokenization import Tokenizer
from service.metrics import Metrics

log = logging.getLogger(__name__)

ROUND_BATCHES = 4  # full batches in a round: more sorts better, fewer lets newcomers in sooner


class EngineError(RuntimeError):
    """The batch that held a request's sequences failed; the engine goes on."""


class EngineDeadError(RuntimeError):
    """The model's thread is not running: nothing is going to be scored."""


class Scored(NamedTuple):
    """A job done.

    Attributes:
        logits: shape (n_sequences,), in the order given.
        queue_seconds: from handing in to the first batch's start.
        model_seconds: from there to the last batch's end.
    """

    logits: NDArray[np.float32]
    queue_seconds: float
    model_seconds: float


class Job:
    """The sequences of one request; only the model's thread touches it once it is handed in."""

    def __init__(self, packed: Sequence[Packed]) -> None:
        self.packed = packed
        self.future: Future[Scored] = Future()
        self._waiting = sorted(range(len(packed)), key=lambda i: len(packed[i].ids))
        self._logits = np.full(len(packed), np.nan, dtype=np.float32)
        self._unscored = len(packed)
        self._handed_in = time.perf_counter()
        self._started = 0.0

    @property
    def over(self) -> bool:
        """Whether nobody waits for it any more: answered, failed or cancelled."""
        return self.future.done()

    @property
    def n_waiting(self) -> int:
        """Sequences not yet taken into a round."""
        return len(self._waiting)

    def take(self) -> int:
        """The number of the next sequence, the longest first; there must be one."""
        return self._waiting.pop()

    def begin(self) -> None:
        """Its first batch starts."""
        self._started = self._started or time.perf_counter()

    def score(self, number: int, logit: np.float32) -> None:
        """Enter a logit; the last one resolves the future."""
        self._logits[number] = logit
        self._unscored -= 1
        if not self._unscored and self.future.set_running_or_notify_cancel():
            now = time.perf_counter()
            self.future.set_result(Scored(self._logits, self._started - self._handed_in, now - self._started))

    def fail(self, error: Exception) -> None:
        """Resolve the future with an error, unless it is resolved or cancelled."""
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class Ticket(NamedTuple):
    """One sequence of one job."""

    job: Job
    number: int

    @property
    def packed(self) -> Packed:
        """The model's input."""
        return self.job.packed[self.number]


class Engine:
    """Owns the session and its thread.

    Args:
        session: scores a batch; used by the engine's thread only.
        tokenizer: of the bundle; says what fills a row, and the type of a document's tokens.
        longest: tokens a sequence may have; every shape up to it is run once before the engine is ready.
        token_cap: tokens a batch may have, padding included.
        metrics: counts batches, tokens and padding.
    """

    def __init__(self, session: batching.Scorer, tokenizer: Tokenizer, longest: int, token_cap: int, metrics: Metrics) -> None:
        self._session = session
        self._pad_id = tokenizer.pad_id
        self._document_type = tokenizer.template.document_type
        self._longest = longest
        self._token_cap = token_cap
        self._metrics = metrics
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
        """Whether the thread runs."""
        return self._thread.is_alive()

    @property
    def ready(self) -> bool:
        """Whether it is warmed up and runs."""
        return self._warm.is_set() and self.alive

    async def score(self, packed: Sequence[Packed]) -> Scored:
        """Score sequences. Cancelling the await drops those that wait. Raises EngineError or EngineDeadError."""
        if not packed:
            return Scored(np.zeros(0, np.float32), 0.0, 0.0)
        return await asyncio.wrap_future(self.submit(packed))

    def submit(self, packed: Sequence[Packed]) -> Future[Scored]:
        """Hand in at least one sequence. Raises EngineDeadError."""
        job = Job(packed)
        with self._changed:
            if self._closing or not self.alive:
                raise EngineDeadError("the model's thread is not running")
            self._jobs.append(job)
            self._changed.notify()
        return job.future

    def _run(self) -> None:
        try:
            self._warm_up()
            while (tickets := self._next_round()) is not None:
                self._run_round(tickets)
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
        for rows, length in batching.shapes(self._longest, self._token_cap):
            if self._closing:
                return
            ones = np.ones((rows, length), dtype=np.int64)
            self._session.score(ones, np.zeros_like(ones), ones)
        self._warm.set()
        self._metrics.set("ready", 1)
        log.info("warmed up in %.1f s", time.perf_counter() - started)

    def _next_round(self) -> list[Ticket] | None:
        """Wait for work and take a round of it; None when closing."""
        with self._changed:
            self._forget()
            while not self._jobs and not self._closing:
                self._changed.wait()
                self._forget()
            return None if self._closing else self._take()

    def _forget(self) -> None:
        self._jobs = [job for job in self._jobs if not job.over]
        self._metrics.set("queued", sum(job.n_waiting for job in self._jobs))

    def _take(self) -> list[Ticket]:
        """A sequence from each job in turn, until the round is full."""
        room = ROUND_BATCHES * self._token_cap
        tickets: list[Ticket] = []
        jobs = self._jobs
        while jobs and room > 0:
            for job in jobs:
                if room > 0:
                    tickets.append(Ticket(job, job.take()))
                    room -= batching.bucket(len(tickets[-1].packed.ids))
            jobs = [job for job in jobs if job.n_waiting]
        return tickets

    def _run_round(self, tickets: list[Ticket]) -> None:
        packed = [ticket.packed for ticket in tickets]
        for batch in batching.plan([len(p.ids) for p in packed], self._token_cap):
            members = [tickets[position] for position in batch.positions]
            if not all(ticket.job.over for ticket in members):
                self._run_batch(batch, members, packed)

    def _run_batch(self, batch: batching.Batch, members: list[Ticket], packed: list[Packed]) -> None:
        for ticket in members:
            ticket.job.begin()
        try:
            ids, types, mask = batching.fill(batch, packed, self._pad_id, self._document_type)
            logits = self._session.score(ids, types, mask)[: len(members)]
        except Exception as error:
            log.exception("a batch of %d sequences failed", len(members))
            self._metrics.add("batches", outcome="failed")
            for job in {ticket.job for ticket in members}:
                job.fail(EngineError(f"the model failed on this request: {error}"))
            return
        self._count(members, mask.size)
        for ticket, logit in zip(members, logits, strict=True):
            if not ticket.job.over:
                ticket.job.score(ticket.number, logit)

    def _count(self, members: list[Ticket], n_fed: int) -> None:
        n_tokens = sum(len(ticket.packed.ids) for ticket in members)
        self._metrics.add("batches", outcome="ok")
        self._metrics.add("tokens", n_tokens)
        self._metrics.add("padding", n_fed - n_tokens)
