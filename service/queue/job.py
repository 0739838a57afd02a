"""Jobs that requests hand to the model's thread: sequences for a graph, and their outputs, some of them known from earlier jobs.

A job turns the outputs for the sequences of its documents into the documents' logits. A learned aggregator runs on the model's
thread, between batches. It takes parts of at most a batch's size, so that no request holds up other requests for long. Like
batches, the parts have one of a few fixed shapes.
"""

import math
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.aggregation import Aggregated, Aggregator, Combine, aggregate
from keyblock.packing import Packed
from service.lru import Lru
from service.pace import Pace
from service.queue.batch import Encoder
from service.queue.schedule import Task
from service.telemetry.metrics import Metrics

EXPECTED_PASSAGES = 16  # passages of a document where the pipeline sets no number; larger shapes work, but are not warmed up
UNMARKED = np.zeros(0, np.float32)
ENTRY_BYTES = 240  # of an entry of the cache without its arrays: the key, the pair, the number, the table
ARRAY_BYTES = 112  # of an array without its data
SequenceOutput = tuple[NDArray[np.float32], NDArray[np.float32] | None]
"""A graph's output for one sequence, see `Job.score`. A plain tuple: the garbage collector does not track those of arrays."""


class ModelError(RuntimeError):
    """A batch with sequences of the request failed, or the warm-up of a model failed; the model's thread goes on."""


class ModelDeadError(RuntimeError):
    """The model's thread is not running, so no more sequences are scored."""


class Scored(NamedTuple):
    """The outcome of a job.

    Attributes:
        logits: if the job aggregates: of the documents, shape (n_documents,), -inf for a document without a sequence. Otherwise of
            the sequences, shape (n_sequences,), in the order given. After a deadline -inf for what is not scored.
        queue_seconds: from handing in until the job's first batch is prepared.
        model_seconds: from there to the end of the last batch.
        passages: of the sequences if each is a block of a document, shape (n_sequences,), see
            `keyblock.aggregation.Aggregated`; -inf for those of a document without a logit.
        marks: one array of shape (length,) for each sequence: the logit of each token that it is part of an answer; empty for a
            sequence that is not scored. None if marks were not requested, or the graph has none.
        problem: why sequences were not scored, other than for lack of time; empty if nothing went wrong.
    """

    logits: NDArray[np.float32]
    queue_seconds: float
    model_seconds: float
    passages: NDArray[np.float32] | None = None
    problem: str = ""
    marks: list[NDArray[np.float32]] | None = None


def unscored(number: int, queue_seconds: float = 0.0) -> Scored:
    """The outcome if none of `number` documents or blocks is scored."""
    return Scored(np.full(number, -np.inf, np.float32), queue_seconds, 0.0)


class Aggregation:
    """The documents of one job; only the model's thread uses an object of this class.

    Args:
        aggregator: the pipeline's aggregator.
        counts: shape (n_documents,), the number of sequences of each document.
        combine: the learned module, for ``states``.
        cap: sequences in a part, padding included.
        pace: measures the time that a document takes.
        weights: shape (n_sequences,), see `keyblock.aggregation.aggregate`; None: all sequences have the same weight.

    Attributes:
        logits: shape (n_documents,), -inf for a document without a sequence, and for every document that is not aggregated yet.
        passages: shape (n_sequences,), see `keyblock.aggregation.Aggregated`; -inf as long as the document has no logit.
    """

    def __init__(
        self,
        aggregator: Aggregator,
        counts: NDArray[np.intp],
        combine: Combine | None,
        cap: int,
        pace: Pace | None = None,
        weights: NDArray[np.float32] | None = None,
    ) -> None:
        self.logits = np.full(len(counts), -np.inf, dtype=np.float32)
        self.passages = np.full(int(counts.sum()), -np.inf, dtype=np.float32)
        self._aggregator, self._counts, self._cap = aggregator, counts, cap
        self._pace = pace or Pace()
        self._combine = None if combine is None else in_fixed_shapes(combine, cap)
        self._weights = np.ones(len(self.passages), np.float32) if weights is None else weights
        self._parts = self._parts_of(counts)

    @property
    def learned(self) -> bool:
        """Whether a learned module computes the logits from the sequences' states, on the model's thread."""
        return self._aggregator.learned

    @property
    def done(self) -> bool:
        """Whether every document has its logit."""
        return not self._parts

    def step(self, outputs: NDArray[np.float32]) -> None:
        """Aggregate the next part; without a learned module there is one, since that costs little.

        Args:
            outputs: the model's outputs for all sequences, document by document; see `keyblock.aggregation.aggregate`.

        Raises what the learned module raises.
        """
        started, documents = time.perf_counter(), self._parts.pop()
        rows, part = self._aggregated(documents, outputs)
        self.logits[documents], self.passages[rows] = part
        self._pace.measured(len(documents), time.perf_counter() - started)

    def aggregate_known(self, outputs: NDArray[np.float32], scored: NDArray[np.bool_]) -> Aggregated:
        """Aggregate the documents whose sequences are all scored; other documents and their passages get -inf. From any thread.

        Args:
            outputs: as for `step`; the rows of unscored sequences may hold anything.
            scored: shape (n_sequences,), which sequences are scored.

        Raises what the learned module raises.
        """
        number = len(self._counts)
        n_scored = np.bincount(np.repeat(np.arange(number), self._counts), scored, minlength=number)
        known = Aggregated(np.full(number, -np.inf, np.float32), np.full(len(scored), -np.inf, np.float32))
        for documents in self._parts_of(np.where(n_scored == self._counts, self._counts, 0)):
            rows, part = self._aggregated(documents, outputs)
            known.logits[documents], known.passages[rows] = part
        return known

    def _parts_of(self, counts: NDArray[np.intp]) -> list[NDArray[np.intp]]:
        """The numbers of the documents that have sequences, in parts that are aggregated at once."""
        documents = np.flatnonzero(counts)
        return parts(counts, self._cap) if self._aggregator.learned else [documents] if len(documents) else []

    def _aggregated(self, documents: NDArray[np.intp], outputs: NDArray[np.float32]) -> tuple[NDArray[np.intp], Aggregated]:
        """The rows of the outputs that belong to these documents, and what comes of them."""
        counts = self._counts[documents]
        offsets = np.cumsum(self._counts)[documents] - np.cumsum(counts)  # a document's first row, less its first place in the part
        rows = np.repeat(offsets, counts) + np.arange(counts.sum())
        return rows, aggregate(self._aggregator, outputs[rows], counts, self._combine, self._weights[rows])


def padded_size(count: int) -> int:
    """The power of two to which `count`, at least 1, is padded."""
    return 1 << (count - 1).bit_length()


def parts(counts: NDArray[np.intp], cap: int) -> list[NDArray[np.intp]]:
    """Divide the documents that have sequences into parts; returns the document numbers of each part.

    A part that is padded to a fixed shape has at most `cap` places, or a single document.

    Args:
        counts: shape (n_documents,), sequences of each; documents of similar counts share a part.
        cap: places of a part.
    """
    order = np.argsort(-counts, kind="stable")[: np.count_nonzero(counts)]
    cut: list[NDArray[np.intp]] = []
    while len(order):
        most = largest_part(int(counts[order[0]]), cap)
        cut.append(order[:most])
        order = order[most:]
    return cut


def largest_part(passages: int, cap: int) -> int:
    """The number of documents, a power of two, that a part may have if each has at most `passages` passages."""
    return 1 << (max(cap // padded_size(passages), 1).bit_length() - 1)


def in_fixed_shapes(combine: Combine, cap: int) -> Combine:
    """Wrap `combine` so that it runs in shapes of powers of two of at most `cap` places (or one document).

    Padding passages are masked; padding documents repeat the last document.
    """

    def run(states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        documents, passages = mask.shape
        most = largest_part(passages, cap)
        if documents > most:
            starts = range(0, documents, most)
            return np.concatenate([run(states[start : start + most], mask[start : start + most]) for start in starts])
        repeated = np.minimum(np.arange(padded_size(documents)), documents - 1)
        padding = (0, 0), (0, padded_size(passages) - passages)
        return combine(np.pad(states[repeated], (*padding, (0, 0))), np.pad(mask[repeated], padding))[:documents]

    return run


def shapes(passages: int, cap: int) -> list[tuple[int, int]]:
    """The smallest and the largest shape (documents, passages) that a part may have, for each number of passages.

    Args:
        passages: the largest number of passages of a document; 0 where nothing bounds it.
        cap: places of a part.
    """
    widest = padded_size(passages or EXPECTED_PASSAGES)
    widths = [1 << power for power in range(widest.bit_length())]
    return sorted({(rows, width) for width in widths for rows in (1, largest_part(width, cap))})


class Job(Task):
    """The sequences of one round of one request; after submission only the model's thread changes them.

    Args:
        packed: at least one sequence.
        encoder: scores them.
        aggregation: of the documents whose sequences these are, in order; None: each sequence keeps its own logit.
        urgency: numbers of sequences, the most urgent first; None: the longest first, which batches best.
        priority: jobs of a smaller one go first.
        until: deadline, in seconds of `time.perf_counter`; None: there is none.
        marks: whether to keep the marks of the tokens.
    """

    def __init__(
        self,
        packed: Sequence[Packed],
        encoder: Encoder,
        aggregation: Aggregation | None = None,
        urgency: Sequence[int] | None = None,
        priority: int = 0,
        until: float | None = None,
        marks: bool = False,
    ) -> None:
        super().__init__(
            encoder, [len(sequence.ids) for sequence in packed], urgency, priority, math.inf if until is None else until
        )
        self.packed = packed
        self.encoder = encoder
        self.future: Future[Scored] = Future()
        self._aggregation = aggregation
        self._outputs = np.zeros(0, np.float32)  # replaced at the first output, which gives the number of columns
        self._scored = np.zeros(len(packed), np.bool_)
        self._marks: list[NDArray[np.float32]] | None = [UNMARKED] * len(packed) if marks else None
        self._marked = False
        self._handed_in = time.perf_counter()
        self._started = self._ended = 0.0

    @property
    def finished(self) -> bool:
        """Whether nobody waits for the job any more: it is answered, failed or cancelled."""
        return self.future.done()

    @property
    def waited(self) -> float:
        """Seconds since the job was handed in."""
        return time.perf_counter() - self._handed_in

    @property
    def n_documents(self) -> int:
        """Documents that are aggregated; 0 if each sequence keeps its own logit."""
        return 0 if self._aggregation is None else len(self._aggregation.logits)

    @property
    def learned(self) -> bool:
        """Whether a learned module computes the documents' logits from the sequences' states, on the model's thread."""
        return self._aggregation is not None and self._aggregation.learned

    @property
    def marks(self) -> list[NDArray[np.float32]] | None:
        """See Scored."""
        return list(self._marks) if self._marks is not None and self._marked else None

    def begin(self) -> None:
        """Note the start of the job's first batch."""
        self._started = self._started or time.perf_counter()

    def score(self, number: int, output: NDArray[np.float32], marks: NDArray[np.float32] | None = None) -> None:
        """Enter the graph's output for a sequence.

        Args:
            number: of the sequence.
            output: a logit, shape (), or a row of shape (1 + hidden,), the logit first.
            marks: of its tokens, then padding; None if the graph does not mark tokens.
        """
        if self._marks is not None and marks is not None:
            self._marks[number] = marks[: len(self.packed[number].ids)].copy()  # a view would keep the whole batch
            self._marked = True
        if self._aggregation is None and output.ndim:
            output = output[0]
        if not len(self._outputs):
            self._outputs = np.full((len(self.packed), *output.shape), np.nan, dtype=np.float32)
        self._outputs[number] = output
        self._scored[number] = True
        self._ended = time.perf_counter()

    def satisfied_by(self, cached: SequenceOutput) -> bool:
        """Whether an output from the cache holds all that the job needs: states for a learned aggregator, marks if requested."""
        output, marks = cached
        return (bool(output.ndim) or not self.learned) and (marks is not None or self._marks is None)

    def recall(self, known: Mapping[int, SequenceOutput]) -> None:
        """Enter outputs from the cache, by sequence number; those sequences are not run. To be used before submission."""
        if known:
            for number, output in known.items():
                self.score(number, *output)
            self.skip(known.keys())

    def outputs_of(self, numbers: Iterable[int]) -> Iterator[tuple[int, SequenceOutput]]:
        """The outputs of those of these sequences that are scored by now; from any thread."""
        scored = self._scored.copy()  # first, see `known`
        for number in numbers:
            if scored[number]:
                marks = self._marks[number] if self._marks is not None and self._marked else None
                yield number, (self._outputs[number].copy(), marks)

    def step(self) -> None:
        """Aggregate the next documents of a complete job; the last ones resolve the future. Raises what the aggregation raises."""
        logits, passages = self._outputs, None
        if self._aggregation is not None:
            self._aggregation.step(self._outputs)
            if not self._aggregation.done:
                return
            logits, passages = self._aggregation.logits, self._aggregation.passages
        if self.future.set_running_or_notify_cancel():
            started = self._started or self._ended  # no batch was run if the cache held all outputs
            seconds = started - self._handed_in, self._ended - started
            self.future.set_result(Scored(logits, *seconds, passages, marks=self.marks))

    def known(self) -> Scored:
        """The outcome as of now, for a job that is cancelled; from any thread. Raises what the aggregation raises."""
        scored = self._scored.copy()  # before the outputs: the output of a sequence is written before its flag
        outputs = self._outputs.copy()
        if not scored.any():
            return self.unscored()
        if self._aggregation is None:
            return self._as_of_now(np.where(scored, outputs, -np.inf).astype(np.float32))
        return self._as_of_now(*self._aggregation.aggregate_known(outputs, scored))

    def unscored(self) -> Scored:
        """The outcome as of now with nothing scored."""
        return self._as_of_now(np.full(self.n_documents or len(self.packed), -np.inf, np.float32))

    def _as_of_now(self, logits: NDArray[np.float32], passages: NDArray[np.float32] | None = None) -> Scored:
        now = time.perf_counter()
        started = self._started or now
        return Scored(logits, started - self._handed_in, now - started, passages, marks=self.marks)

    def fail(self, error: Exception) -> None:
        """Resolve the future with an error, unless it is resolved or cancelled."""
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)


class ScoreCache:
    """Outputs of graphs for earlier sequences, of all models: a request with the same sequence waits for no turn and costs no run.

    The key holds all that a graph reads: the token ids of one sequence, the start of its second segment, and the graph's identity.
    Query, instruction, title, budget, selection and its rules act only through these, so no stale output is ever found. A graph
    that is loaded again has a new identity. What depends on more (weights of sequences, learned aggregators, fusion, activations,
    spans) comes later and is computed anew. An output is complete by itself, even if the request for which it was computed failed.

    Safe to use from several threads.

    Args:
        capacity: bytes; 0 keeps nothing.
        metrics: counts hits and misses.
    """

    def __init__(self, capacity: int, metrics: Metrics) -> None:
        self._outputs: Lru[SequenceOutput] = Lru(capacity, cost)
        self._metrics = metrics

    def recall(self, job: Job) -> dict[int, bytes]:
        """Enter known outputs into a job before it is submitted. Returns the keys of its other sequences by their numbers."""
        if not self._outputs.capacity:
            return {}
        keys = [sequence_key(packed, job.encoder) for packed in job.packed]  # before the lock is taken
        found = enumerate(self._outputs.get_all(keys))
        known = {number: output for number, output in found if output is not None and job.satisfied_by(output)}
        job.recall(known)
        self._metrics.add("score_lookups", len(known), model=job.encoder.model, outcome="hit")
        self._metrics.add("score_lookups", len(keys) - len(known), model=job.encoder.model, outcome="miss")
        return {number: key for number, key in enumerate(keys) if number not in known}

    def keep(self, job: Job, missed: Mapping[int, bytes]) -> None:
        """Keep the outputs of these sequences, see `recall`, that are scored by now; the others were late or failed."""
        if missed:
            self._outputs.put_all({missed[number]: output for number, output in job.outputs_of(missed)})
            self._metrics.set("score_cache_bytes", self._outputs.nbytes)

    def clear(self) -> None:
        """Drop all entries, because graphs were replaced."""
        self._outputs.clear()
        self._metrics.set("score_cache_bytes", 0)


def sequence_key(packed: Packed, encoder: Encoder) -> bytes:
    """A key of 16 bytes, from a cryptographic hash: no client can make two sequences collide and so plant false scores."""
    where = packed.split.to_bytes(8, "little")
    return blake2b(packed.ids.data, digest_size=16, salt=encoder.identity, person=where).digest()


def cost(output: SequenceOutput) -> int:
    """Bytes of an entry."""
    return ENTRY_BYTES + sum(part.nbytes + ARRAY_BYTES for part in output if part is not None and part.ndim)
