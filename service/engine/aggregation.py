"""A request's documents on their way from what the model says of their sequences to their logits, a part at a time.

A learned aggregator runs on the model's thread, between batches: in parts of at most a batch's size, so that no request holds up
the others for long, and in a few fixed shapes, as batches have them.
"""

import numpy as np
from numpy.typing import NDArray

from keyblock.aggregation import Aggregated, Aggregator, Combine, aggregate
from service.machine import ASYNCIO, Clock
from service.pace import Pace

EXPECTED_PASSAGES = 16  # of a document where the pipeline sets no number; more are combined as well, but not warmed up


class Aggregation:
    """The documents of one job; used by the model's thread only.

    Args:
        aggregator: of the pipeline.
        counts: shape (n_documents,), sequences of each.
        combine: the learned module, for ``states``.
        cap: sequences in a part, padding included.
        pace: measures how long a document takes.
        weights: shape (n_sequences,), see `keyblock.aggregation.aggregate`; none: they all count alike.
        clock: measures.

    Attributes:
        logits: shape (n_documents,), -inf for a document without a sequence, and as long as it is not `done`.
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
        clock: Clock = ASYNCIO.now,
    ) -> None:
        self.logits = np.full(len(counts), -np.inf, dtype=np.float32)
        self.passages = np.full(int(counts.sum()), -np.inf, dtype=np.float32)
        self._aggregator = aggregator
        self._combine_and_cap = combine, cap
        self._pace, self._clock = pace or Pace(), clock
        self._combine = None if combine is None else in_fixed_shapes(combine, cap)
        self._counts = counts
        self._weights = np.ones(len(self.passages), np.float32) if weights is None else weights
        self._parts = parts(counts, cap)
        self._whole = len(self._parts) == 1

    @property
    def learned(self) -> bool:
        """Whether it is made of the sequences' states, on the model's thread."""
        return self._aggregator.learned

    @property
    def done(self) -> bool:
        """Whether every document has its logit."""
        return not self._parts

    def step(self, outputs: NDArray[np.float32]) -> int:
        """Aggregate the next part; every part where nothing is learned, which is next to no work. Returns how many documents.

        Args:
            outputs: the model's of all sequences, document by document; see `keyblock.aggregation.aggregate`.

        Raises what the learned module raises.
        """
        started, n_documents = self._clock(), 0
        for _ in range(1 if self._aggregator.learned else len(self._parts)):
            documents = self._parts.pop()
            n_documents += len(documents)
            if self._whole:
                self.logits, self.passages = aggregate(self._aggregator, outputs, self._counts, self._combine, self._weights)
            else:
                rows, counts = self._rows(documents), self._counts[documents]
                part = aggregate(self._aggregator, outputs[rows], counts, self._combine, self._weights[rows])
                self.logits[documents], self.passages[rows] = part
        self._pace.measured(n_documents, self._clock() - started)
        return n_documents

    def of_known(self, outputs: NDArray[np.float32], scored: NDArray[np.bool_]) -> Aggregated:
        """The documents whose sequences are all scored; -inf for the others, and for their passages.

        Args:
            outputs: as for `step`, some not known.
            scored: shape (n_sequences,), which are.

        Raises what the learned module raises.
        """
        ends = np.cumsum(self._counts)
        before = np.concatenate([[0], np.cumsum(scored)])
        whole = before[ends] - before[ends - self._counts] == self._counts
        rows = np.repeat(whole, self._counts)
        counts = np.where(whole, self._counts, 0)
        part = Aggregation(self._aggregator, counts, *self._combine_and_cap, weights=self._weights[rows])
        while not part.done:
            part.step(outputs[rows])
        passages = np.full(len(outputs), -np.inf, dtype=np.float32)
        passages[rows] = part.passages
        return Aggregated(part.logits, passages)

    def _rows(self, documents: NDArray[np.intp]) -> NDArray[np.intp]:
        """Where the outputs of these documents stand, shape (their sequences,)."""
        counts = self._counts[documents]
        behind = np.cumsum(self._counts)[documents] - np.cumsum(counts)  # of all sequences, less those of the part
        return np.repeat(behind, counts) + np.arange(counts.sum())


def fixed(count: int) -> int:
    """The power of two that `count`, at least 1, is padded to."""
    return 1 << (count - 1).bit_length()


def parts(counts: NDArray[np.intp], cap: int) -> list[NDArray[np.intp]]:
    """Document numbers, those with sequences, so that a part padded to a fixed shape has at most `cap` places (or one document).

    Args:
        counts: shape (n_documents,), sequences of each; where one part does not do, documents of like counts come together.
        cap: places of a part.
    """
    if fixed(len(counts)) * fixed(int(counts.max())) <= cap:
        return [np.flatnonzero(counts)] if counts.any() else []
    order = np.argsort(counts, kind="stable")
    order = order[counts[order] > 0]
    cut: list[NDArray[np.intp]] = []
    while len(order):
        most = largest_part(int(counts[order[-1]]), cap)
        cut.append(order[-most:])
        order = order[:-most]
    return cut


def largest_part(passages: int, cap: int) -> int:
    """How many documents of at most so many passages a part may have: a power of two."""
    return 1 << (max(cap // fixed(passages), 1).bit_length() - 1)


def in_fixed_shapes(combine: Combine, cap: int) -> Combine:
    """The same, but run in shapes of powers of two of at most `cap` places (or one document).

    Padding passages are masked, spare documents repeat the last.
    """

    def run(states: NDArray[np.float32], mask: NDArray[np.bool_]) -> NDArray[np.float32]:
        documents, passages = mask.shape
        most = largest_part(passages, cap)
        if documents > most:
            starts = range(0, documents, most)
            return np.concatenate([run(states[start : start + most], mask[start : start + most]) for start in starts])
        repeated = np.minimum(np.arange(fixed(documents)), documents - 1)
        wider = (0, 0), (0, fixed(passages) - passages)
        return combine(np.pad(states[repeated], (*wider, (0, 0))), np.pad(mask[repeated], wider))[:documents]

    return run


def shapes(passages: int, cap: int) -> list[tuple[int, int]]:
    """The smallest and the largest (documents, passages) of each number of passages that a part may have.

    Args:
        passages: that a document has at most; 0 where nothing bounds it.
        cap: places of a part.
    """
    widest = fixed(passages or EXPECTED_PASSAGES)
    widths = [1 << power for power in range(widest.bit_length())]
    return sorted({(rows, width) for width in widths for rows in (1, largest_part(width, cap))})
