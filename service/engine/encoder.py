"""Runs batches of token ids through a graph; its warm-up measures how many rows a batch may have."""

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keyblock.packing import Packed
from keyblock.runtime import batching
from keyblock.runtime.session import Marked, Session
from keyblock.text.tokenizer import Tokenizer
from service.engine.schedule import Lane
from service.engine.warmup import first_runs
from service.machine import ASYNCIO, Clock
from service.pace import Pace

_NUMBERS = itertools.count()


class Caps(NamedTuple):
    """The limits of a batch.

    Attributes:
        tokens: padding included; also the limit of the [CLS] states that are combined at once.
        seconds: as measured in the warm-up; a single sequence may take longer.
        hung_after: seconds after which a batch is taken to hang.
    """

    tokens: int
    seconds: float
    hung_after: float = 60.0


class Filled(NamedTuple):
    """A batch that is ready to run.

    Attributes:
        arrays: token ids, type ids and mask, each of shape (rows, length).
        sequences: the number of sequences; rows beyond them repeat the first.
    """

    arrays: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
    sequences: int


class Fed(NamedTuple):
    """The outputs of a batch.

    Attributes:
        outputs: of the batch's sequences, in their order.
        marks: shape (sequences, length); None if the graph does not mark tokens.
        tokens: fed to the graph, padding included.
        seconds: the time that the graph took.
    """

    outputs: NDArray[np.float32]
    marks: NDArray[np.float32] | None
    tokens: int
    seconds: float


class Encoder(Lane):
    """One graph of a model; one thread at a time runs it.

    Args:
        graph: scores the batches.
        model: the model's name, for metrics.
        tokenizer: gives the padding token and the type of document tokens.
        pace: seconds per token, shared by all graphs of the model.
        clock: measures time, in seconds.
        ahead: see `service.engine.instance.Graphs`.

    Attributes:
        identity: 8 bytes, unique within this process.
    """

    def __init__(
        self,
        graph: batching.Scorer,
        model: str,
        tokenizer: Tokenizer,
        pace: Pace,
        clock: Clock = ASYNCIO.now,
        ahead: int = 0,
    ) -> None:
        super().__init__(pace)
        self.graph = graph
        self.model = model
        self.ahead = ahead
        self.identity = next(_NUMBERS).to_bytes(8, "little")
        self._clock = clock
        self._pad_id = tokenizer.pad_id
        self._document_type = tokenizer.template.document_type

    def fill(self, batch: batching.Batch, packed: Sequence[Packed]) -> Filled:
        """Fill a batch with these sequences."""
        return Filled(batching.fill(batch, packed, self._pad_id, self._document_type), len(batch.positions))

    def run(self, filled: Filled) -> Fed:
        """Run a batch, on any thread. Raises what the graph raises."""
        started = self._clock()
        outputs, marks = self._outputs(*filled.arrays)
        seconds, n_sequences = self._clock() - started, filled.sequences
        return Fed(outputs[:n_sequences], None if marks is None else marks[:n_sequences], filled.arrays[0].size, seconds)

    def _outputs(self, *arrays: NDArray[np.int64]) -> Marked:
        return self.graph.mark(*arrays) if isinstance(self.graph, Session) else Marked(self.graph.score(*arrays), None)

    def first_runs(self, longest: int, caps: Caps) -> Iterator[None]:
        """Run the graph in every shape that it may meet, for sequences of up to `longest` tokens; yields after each run."""
        for run in first_runs(self.graph, batching.capped(longest, caps.tokens), caps.seconds, self._clock):
            if run is not None:
                rows, length, seconds = run
                self.most_rows[length] = rows
                self.pace.measured(rows * length, seconds)
            yield
