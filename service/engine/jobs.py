"""What a request hands in to the model's thread: sequences for a model's graph, and what becomes of their outputs."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.packing import Packed
from service.engine.aggregation import Aggregation
from service.engine.encoder import Encoder
from service.engine.schedule import Task
from service.machine import ASYNCIO, Clock

UNMARKED = np.zeros(0, np.float32)
Said = tuple[NDArray[np.float32], NDArray[np.float32] | None]
"""What a graph says of one sequence, see `Job.score`. No class of its own: of plain tuples the garbage collector loses sight."""


class Scored(NamedTuple):
    """A job done.

    Attributes:
        logits: of the documents where the job aggregates, shape (n_documents,), -inf for one without a sequence; else of the
            sequences, shape (n_sequences,), in the order given. Where time was up first, -inf for what is not scored.
        queue_seconds: from handing in until its first batch is made ready.
        model_seconds: from there to the last batch's end.
        passages: of the sequences where each is a block of a document, shape (n_sequences,), see
            `keyblock.aggregation.Aggregated`; -inf for those of a document without a logit.
        marks: of each sequence that was handed in, shape (length,), the logit of each token that it answers; empty for one that is
            not scored. None where nobody asked, or the graph marks none.
        problem: why sequences were not scored, beside want of time; empty where nothing was wrong.
    """

    logits: NDArray[np.float32]
    queue_seconds: float
    model_seconds: float
    passages: NDArray[np.float32] | None = None
    problem: str = ""
    marks: list[NDArray[np.float32]] | None = None


class Job(Task):
    """The sequences of one round of one request; only the model's thread touches it once it is handed in.

    Args:
        packed: at least one sequence.
        encoder: what scores them.
        aggregation: of the documents that they are, in order; none: each sequence's own logit is wanted.
        urgency: numbers of sequences, the first to be scored first; none: the longest first, which batches best.
        priority: jobs of a smaller one go first.
        until: nothing more is scored from then on.
        marks: whether the tokens' marks are wanted.
        clock: as `until` counts.
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
        clock: Clock = ASYNCIO.now,
    ) -> None:
        super().__init__(
            encoder, [len(sequence.ids) for sequence in packed], urgency, priority, math.inf if until is None else until
        )
        self.packed = packed
        self.encoder = encoder
        self.future: Future[Scored] = Future()
        self._aggregation = aggregation
        self._outputs = np.zeros(0, np.float32)  # of as many columns as the first output has
        self._scored = np.zeros(len(packed), np.bool_)
        self._marks: list[NDArray[np.float32]] | None = [UNMARKED] * len(packed) if marks else None
        self._marked = False
        self._clock = clock
        self._handed_in = clock()
        self._started = self._ended = 0.0

    @property
    def over(self) -> bool:
        """Whether nobody waits for it any more: answered, failed or cancelled."""
        return self.future.done()

    @property
    def waited(self) -> float:
        """Seconds since it was handed in."""
        return self._clock() - self._handed_in

    @property
    def n_documents(self) -> int:
        """Documents that are aggregated; 0 where each sequence's own logit is wanted."""
        return 0 if self._aggregation is None else len(self._aggregation.logits)

    @property
    def learned(self) -> bool:
        """Whether its documents' logits are made of the sequences' states, on the model's thread."""
        return self._aggregation is not None and self._aggregation.learned

    @property
    def marks(self) -> list[NDArray[np.float32]] | None:
        """See Scored."""
        return list(self._marks) if self._marks is not None and self._marked else None

    def begin(self) -> None:
        """Its first batch starts."""
        self._started = self._started or self._clock()

    def score(self, number: int, output: NDArray[np.float32], marks: NDArray[np.float32] | None = None) -> None:
        """Enter what the graph says of a sequence.

        Args:
            number: the sequence's.
            output: a logit, shape (), or a row of shape (1 + hidden,), the logit first.
            marks: of its tokens, padding behind them; none of a graph that marks none.
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
        self._ended = self._clock()

    def served_by(self, said: Said) -> bool:
        """Whether this is all that the job wants to know of a sequence."""
        output, marks = said
        return (bool(output.ndim) or not self.learned) and (marks is not None or self._marks is None)

    def recall(self, known: Mapping[int, Said]) -> None:
        """Enter what is known of some sequences, by number, which are not scored then; before the job is handed in."""
        if known:
            for number, said in known.items():
                self.score(number, *said)
            self.skip(known.keys())

    def said_of(self, numbers: Iterable[int]) -> Iterator[tuple[int, Said]]:
        """What the graph has said by now of those of these sequences that are scored; from any thread."""
        scored = self._scored.copy()  # first, see `known`
        for number in numbers:
            if scored[number]:
                marks = self._marks[number] if self._marks is not None and self._marked else None
                yield number, (self._outputs[number].copy(), marks)

    def step(self) -> None:
        """Go on with a complete job: aggregate the next documents; the last of them resolve the future. Raises what they raise."""
        logits, passages = self._outputs, None
        if self._aggregation is not None:
            self._aggregation.step(self._outputs)
            if not self._aggregation.done:
                return
            logits, passages = self._aggregation.logits, self._aggregation.passages
        if self.future.set_running_or_notify_cancel():
            started = self._started or self._ended  # nothing was run of what was known
            seconds = started - self._handed_in, self._ended - started
            self.future.set_result(Scored(logits, *seconds, passages, marks=self.marks))

    def known(self) -> Scored:
        """What is scored by now; for a job that is cancelled, from any thread. Raises what the aggregation raises."""
        scored = self._scored.copy()  # first: what is marked by now is whole
        outputs = self._outputs.copy()
        if not scored.any():
            return self.unscored()
        if self._aggregation is None:
            return self._as_of_now(np.where(scored, outputs, -np.inf).astype(np.float32))
        return self._as_of_now(*self._aggregation.of_known(outputs, scored))

    def unscored(self) -> Scored:
        """The same where nothing is scored, or it came too late."""
        return self._as_of_now(np.full(self.n_documents or len(self.packed), -np.inf, np.float32))

    def _as_of_now(self, logits: NDArray[np.float32], passages: NDArray[np.float32] | None = None) -> Scored:
        now = self._clock()
        started = self._started or now
        return Scored(logits, started - self._handed_in, now - started, passages, marks=self.marks)

    def fail(self, error: Exception) -> None:
        """Resolve the future with an error, unless it is resolved or cancelled."""
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_exception(error)
