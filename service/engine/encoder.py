"""A graph that reads token ids, at work: it runs batches, and knows from its warm-up how many rows they may have."""

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
    """What bounds a batch.

    Attributes:
        tokens: padding included; also the [CLS] states that are combined at once.
        seconds: measured in the warm-up; a single sequence may take longer.
        hung_after: seconds after which a batch is not expected to end any more.
    """

    tokens: int
    seconds: float
    hung_after: float = 60.0


class Filled(NamedTuple):
    """A batch, ready to be run.

    Attributes:
        arrays: token ids, type ids and mask, each of shape (rows, length).
        sequences: that it is of; rows beyond them repeat the first.
    """

    arrays: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]
    sequences: int


class Fed(NamedTuple):
    """What came of a batch.

    Attributes:
        outputs: of its sequences, in its order.
        marks: shape (sequences, length), where the graph marks tokens.
        tokens: fed, padding included.
        seconds: that the graph took.
    """

    outputs: NDArray[np.float32]
    marks: NDArray[np.float32] | None
    tokens: int
    seconds: float


class Encoder(Lane):
    """One graph of a model; one thread at a time runs it.

    Args:
        graph: what is run.
        model: the model's name, for metrics.
        tokenizer: says what fills a row.
        pace: of all the model's graphs, a token.
        clock: measures.
        ahead: see `service.engine.instance.Graphs`.

    Attributes:
        identity: 8 bytes that no other one of this process has.
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
        """Make a batch ready."""
        return Filled(batching.fill(batch, packed, self._pad_id, self._document_type), len(batch.positions))

    def run(self, filled: Filled) -> Fed:
        """Run a batch, on any thread. Raises what the graph raises."""
        started = self._clock()
        outputs, marks = self._outputs(*filled.arrays)
        seconds, real = self._clock() - started, filled.sequences
        return Fed(outputs[:real], None if marks is None else marks[:real], filled.arrays[0].size, seconds)

    def _outputs(self, *arrays: NDArray[np.int64]) -> Marked:
        return self.graph.mark(*arrays) if isinstance(self.graph, Session) else Marked(self.graph.score(*arrays), None)

    def first_runs(self, longest: int, caps: Caps) -> Iterator[None]:
        """Run it in every shape that it may meet, for sequences of up to so many tokens; yields after each run."""
        for run in first_runs(self.graph, batching.capped(longest, caps.tokens), caps.seconds, self._clock):
            if run is not None:
                rows, length, seconds = run
                self.most_rows[length] = rows
                self.pace.measured(rows * length, seconds)
            yield
