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


class Fed(NamedTuple):
    """What came of a batch.

    Attributes:
        outputs: of its sequences, in its order.
        marks: shape (sequences, length), where the graph marks tokens.
        tokens: fed, padding included.
    """

    outputs: NDArray[np.float32]
    marks: NDArray[np.float32] | None
    tokens: int


class Encoder(Lane):
    """One graph of a model; the model's thread alone runs it.

    Args:
        graph: what is run.
        model: the model's name, for metrics.
        tokenizer: says what fills a row.
        pace: of all the model's graphs, a token.
        clock: measures.

    Attributes:
        identity: 8 bytes that no other one of this process has.
    """

    def __init__(self, graph: batching.Scorer, model: str, tokenizer: Tokenizer, pace: Pace, clock: Clock = ASYNCIO.now) -> None:
        super().__init__(pace)
        self.graph = graph
        self.model = model
        self.identity = next(_NUMBERS).to_bytes(8, "little")
        self._clock = clock
        self._pad_id = tokenizer.pad_id
        self._document_type = tokenizer.template.document_type

    def score(self, batch: batching.Batch, packed: Sequence[Packed]) -> Fed:
        """Run a batch. Raises what the graph raises."""
        ids, types, mask = batching.fill(batch, packed, self._pad_id, self._document_type)
        started = self._clock()
        outputs, marks = self._run(ids, types, mask)
        self.pace.measured(mask.size, self._clock() - started)
        real = len(batch.positions)
        return Fed(outputs[:real], None if marks is None else marks[:real], mask.size)

    def _run(self, *filled: NDArray[np.int64]) -> Marked:
        return self.graph.mark(*filled) if isinstance(self.graph, Session) else Marked(self.graph.score(*filled), None)

    def first_runs(self, longest: int, caps: Caps) -> Iterator[None]:
        """Run it in every shape that it may meet, for sequences of up to so many tokens; yields after each run."""
        for run in first_runs(self.graph, batching.capped(longest, caps.tokens), caps.seconds, self._clock):
            if run is not None:
                rows, length, seconds = run
                self.most_rows[length] = rows
                self.pace.measured(rows * length, seconds)
            yield
